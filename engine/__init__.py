"""The embedded engine: carries out Pulumi programs where Pulumi's own engine cannot be had.

From the outside in, one module per noun:

- `cli`, `backend`, `display`, `secrets`, `project`, `stackconfig`: the command around the engine.
- `deployment`: one run, from its first event to its last; `request` and `events` are its edges.
- `program` (and `program_runner` inside the program's process), `monitor`, `engine_service`: the
  program and the gRPC services that it talks to.
- `registrar` carries out a registration: `drafts` finds its old state, `planner` decides,
  `replacement` orders replacements, `targets` keeps what no target asks for, `executor` takes
  the steps.
- `step`, `changes`, `deletes`, `refresh`: what a step does.
- `plugins`, `provider`, `providers`: processes that serve resources, and which of them serves what.
- `keeper`: the stored state, around every step. `reporter`: events and counts.
- Values: `values`, `wire`, `state`, `goal`, `urn`, `paths`, `diff`, `graph`, `answers` (of providers).
- `stand_ins`: providers of its own, each a process, where the real plugins are not installed.
"""
