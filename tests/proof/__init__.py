"""The proof: what is killed, failed, interleaved and put to sleep, and who judges it. Nothing here is planted in `src`.

    judge/          the independent judge and its remote; imports nothing of pushlink
    points.py       every statement, commit and socket step of a process, counted; deaths and faults at one of them
    scenarios.py    `Stand` (a deployment), `Hand` (one process of it: host, worker, operator), and what a scenario is
    stories.py      the table of scenarios that `make crash` goes through
    lane.py         one scenario on one database: forks, recovers, asks the judge
    crash.py        `make crash`
    model/          models of the protocol for SPIN, the table of their runs, and `make model`
    simulation/     a deployment out of a seed: its faults, its surroundings, what happens, and what a run has to reach
    simulate.py     `make simulate`
    orders.py       casts whose effects are woven in every order, or in seeded ones; sends that are on the way
    zombies.py      real workers that are stopped at a chosen step and woken
    interleave.py   `make interleave`
    mutation/       the closing rules, and how each is switched off
    mutants.py      `make mutants`
    plain/          the same for single operators of the protocol's modules
    chaos/          `make chaos`: real hosts, workers and servers, and what strikes them
    upgrade/        `make upgrade`: the release before this one beside it, kept as it was
    machine/        a model of one record in 152 lines, and the machine of Hypothesis: model = SQLite = PostgreSQL
    isolation.py    `make isolation`: the behaviour tests at every level of isolation
    databases.py    migrated databases of both dialects, without pytest
    figures.py      what a command measured, written into docs/reliability.md

For another proof (a simulation, mutants, chaos): make databases with `Databases`, a deployment with `Stand`, and let
`Hand` do what a process does; start `proof.judge.remote` as a process, and ask `proof.judge` (a process) or `Court`
(a class) about records, or about everything. A new story for `make crash` is one entry of `SCENARIOS`: its name, what
is prepared, what is disturbed, what recovers it, how the remote behaves, and how it may end.
"""
