"""The API by which tenants run containers: HTTP in front, pods behind, nothing kept in between.

The cluster is the only state: watches keep what is read often up to date, the API server's quota and names
decide what is written. So any number of copies may run. From outside to inside: `server` (connections),
`gate` (who, how much), `app` (HTTP), `containers` (what happens), `store` (what the cluster holds).
"""
