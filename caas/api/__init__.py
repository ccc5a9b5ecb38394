"""The API by which tenants run containers: HTTP in front, pods behind, nothing kept in between.

The cluster is the only state. What is read often is kept up to date by watches; what is written goes
straight to the API server, whose quota and whose names decide. So any number of copies may run.

From outside to inside: `server` (connections, deadlines), `gate` (who, how often, how much), `routes`
(HTTP), `containers` (what happens), `store` (what the cluster holds).
"""
