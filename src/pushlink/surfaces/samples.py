"""What `pushlink init` writes: settings, a policy and a pack to begin with, about notes."""

from __future__ import annotations

from string import Template
from typing import Final

SETTINGS_NAME: Final = "pushlink.toml"
SECRET_NAME: Final = "pushlink.secret"  # noqa: S105 - the name of a file
POLICY_NAME: Final = "policy.yaml"
PACK_NAME: Final = "packs/notes.yaml"
DATABASE_NAME: Final = "pushlink.db"

#: Bytes of a fresh deployment secret, before they are written in hexadecimal.
SECRET_BYTES: Final = 32

SETTINGS: Final = Template("""\
# Settings of one deployment. A variable PUSHLINK_<KEY> wins over this file (PUSHLINK_WORKER__LEASE=2m).

# pushlink's own tables; the records are read here too. Several workers or hosts want PostgreSQL:
# database_url = "postgresql://user@host/database"
database_url = "$database_url"

# Keys of requests are derived from it: keep it, and keep it apart from backups of the database.
secret_file = "pushlink.secret"

[authority]
$authority

# Where records are. Without `fields` every column is a field.
[objects.Note]
table = "note"
key = [{column = "id", type = "integer"}]

[worker]
# lease = "90s"      # how long a worker may hold an attempt; it must hold a request's whole deadline
# sends_max = 128    # requests on the wire at once

[egress]
# allow_loopback = true   # to push to a remote on this machine
""")

AUTHORITY_POLICY: Final = 'kind = "policy"\nfile = "policy.yaml"'
AUTHORITY_ALLOW_ALL: Final = (
    'kind = "allow_all"   # every named user may read everything: for an installation with one user'
)

POLICY: Final = """\
# Who may read which fields of which records. What no line grants is denied.
policy: 1

roles:
  publisher:
    objects:
      Note: {fields: all, rows: all}

users:
  me: {roles: [publisher]}
"""

PACK: Final = Template("""\
# A remote API as data: where it is, what is sent, and where the answer has the new record's id.
# Names may change at any time; the owner key and the slot ids never do. Check it: pushlink pack check packs/notes.yaml
pack: notes
version: 1.0.0
connector_owner_key: $owner
namespace: notes

profiles:
  main:
    base_url: https://api.example.com/v1
    credential_ref: env:NOTES_TOKEN        # where the secret is, never the secret
    auth: {kind: bearer}

destinations:
  - {destination_slot_id: $destination, target_object: notes, profile: main}

flows:
  - flow: Notes
    version: 1
    actions:
      - action: push_note
        action_slot_id: $action
        source_object: Note
        destination: $destination
        create:
          path: /notes
          success: {status: [201]}
          response: {id: [{from: $$response.body#/id}]}
        update:
          path: /notes/{remote_id}
          success: {status: [200]}
        mappings:
          - {source: title, target: /title}
          - {source: body, target: /body}
""")
