"""Chaos: real workers of one deployment, as many processes as it likes, while something goes on destroying.

site.py        a deployment in a directory: settings, host and worker processes, what waits, what came of it
host.py        a process that writes records and saves them, and does not give up
late.py        `pushlink worker`, or a host, whose database's clock jumps
cluster.py     a PostgreSQL of this site's own, replicas by `pg_basebackup`, failovers
proxy.py       a proxy that cuts connections around COMMIT
troubles.py    `Trouble`, and the table of them: what is destroyed, and what must hold afterwards
__main__.py    `make chaos`
"""
