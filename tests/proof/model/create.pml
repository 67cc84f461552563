/*
 * One link key's creates: saves, workers, an operator, a remote and the network between them.
 *
 * An atomic block is one transaction or one step on the socket. Between two blocks everything else may happen: the
 * other worker runs, this one is paused or killed, its lease ends, the database fails over. A lease may end at any
 * moment, so nothing that holds here leans on a clock. `go` names the arrow that a transaction takes; a test compares
 * the arrows with `pushlink.protocol.states`, so model and code cannot drift apart unseen.
 *
 * Each rule is in force unless -DNO_<RULE> switches it off, and a run without it must find a violation.
 *
 *   FENCE       an owner's write is a compare-and-set on the token of its claim             (D-12)
 *   LATE        a reply without a claim is kept as evidence                                 (D-14)
 *   SETTLE      absence is declared only when nobody can still send and nothing is underway (D-08)
 *   INDEX       the occupancy index covers finalized creates too                            (D-10)
 *   CONFLICT    a taken locator keeps the id of the answer                                  (D-15)
 *   HELDONLY    an id is disposed of only where it stands in conflict                       (D-09)
 *   PROOF       a terminal failure needs proof that nothing was applied                     (D-05, D-09)
 *   REREAD      a commit with an unknown outcome is read again before a byte is sent        (D-13)
 *   TIMELINE    a claim of an older timeline of the database is in doubt                    (D-36)
 *   RESTORED    confirming a restored database puts every open create in doubt              (D-36)
 *   STICKY      a later refusal clears no earlier unknown                                   (D-06, with CONTRACT)
 *   LIFETIME    the key's lifetime is checked again in the checkpoint's transaction         (D-07, with CONTRACT)
 *   VALIDATION  a validation that fails on a replay proves nothing                          (D-07, with CONTRACT)
 *
 * Variants: -DCONTRACT freezes a replay contract; -DSNAPSHOT lets a save read its gates before the transaction that
 * reserves, as a host at READ COMMITTED without the slot's lock would (the index alone must then be enough, D-44).
 */
#ifndef CLAIMS
#define CLAIMS 2            /* claims of one attempt before it counts as poison */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef FAILOVERS
#define FAILOVERS 1
#endif
#define MESSAGES 3
#define POSTS 3

mtype = {                   /* statuses of an attempt */
  NONE, PENDING, PROCESSING, POST_SENT, AMBIGUOUS_REMOTE_EFFECT, WRITEBACK_COMMIT_PENDING, WRITEBACK_PENDING,
  FINALIZED, TERMINAL_FAILED, SUPERSEDED };
mtype = {                   /* events of an attempt */
  RESERVE, CLAIM, END_UNSENT, DOUBT, RECOVER_UNSTARTED, GIVE_BACK, FAIL_VALIDATION, ANSWER_STORED, NOT_APPLIED, REPLAY,
  REJECT, UNKNOWN, LINK_FINALIZED, LINK_FINALIZED_NO_MIRROR, LOCATOR_TAKEN, MIRROR_SETTLED, MIRROR_FAILED, PROMOTE,
  DISPOSE, ADOPT, STAMP_FOUND, CONFIRM_ABSENT, REPLAY_EXPLICIT, SUPERSEDE };
mtype = { IDLE, CLAIMED, CHECKPOINTED, WAITING, ANSWERED, MIRRORING };          /* where a worker stands */
mtype = { EMPTY, UNDERWAY, REPLIED, REPLY_LOST };                               /* a message slot */
mtype = { CREATED, REFUSED, BROKEN };                                           /* an answer; BROKEN says nothing */

/* the database; index 0 is unused */
mtype st[3] = NONE; byte claims[3]; byte token[3]; bool leased[3]; bool checkpoint[3]; bool doubt[3]; byte id[3];
byte late[3]; bool evidence[3]; bool conflict[3]; bool poison[3]; bool older[3];
byte reserved = 0; bool link = false; byte link_id = 0;
bool mirror;                                                                    /* is a mirror configured? */
byte failovers = 0; bool restored = false;
/* the remote */
byte records = 0; byte made[3]; bool forgotten[3]; bool taken; byte disposed = 0; byte posts = 0;
/* the network */
mtype slot[MESSAGES] = EMPTY; byte about[MESSAGES]; mtype answer[MESSAGES]; byte named[MESSAGES]; bool orphan[MESSAGES];
/* the workers' memories */
mtype pc[2] = IDLE; byte on[2]; byte mine[2]; byte via[2]; mtype got[2]; byte got_id[2];
byte crashes = 0;
bool id_lost = false;                                                           /* ghost */

#ifdef TRACE
#define SAY(text, a, b) printf(text, a, b)
#else
#define SAY(text, a, b) skip
#endif

inline go(x, from, event, to) {
  assert(st[x] == from);
  st[x] = to;
  SAY("@ attempt %d: %e\n", x, event)
}

#ifdef NO_FENCE
#define OWNS(me, x) (true)
#else
#define OWNS(me, x) (token[x] != 0 && token[x] == mine[me])
#endif
#define ANSWERABLE(x) (st[x] == PROCESSING || st[x] == POST_SENT)
#define MAY_SEND(me, x) ((pc[me] == CHECKPOINTED || pc[me] == WAITING || pc[me] == ANSWERED) && on[me] == x)
#define ON_WIRE(x) ((slot[0] == UNDERWAY && about[0] == x) || (slot[1] == UNDERWAY && about[1] == x) || (slot[2] == UNDERWAY && about[2] == x))
#define QUIET(x) (!MAY_SEND(0, x) && !MAY_SEND(1, x) && !ON_WIRE(x))
#ifdef NO_SETTLE
#define SETTLED(x) (true)
#else
#define SETTLED(x) QUIET(x)
#endif
#ifdef CONTRACT
#define LIVE(x) (!forgotten[x])
#else
#define LIVE(x) (false)
#endif
#ifdef NO_INDEX
#define OCCUPIES(x) (st[x] != NONE && st[x] != FINALIZED && st[x] != SUPERSEDED)
#else
#define OCCUPIES(x) (st[x] != NONE && st[x] != SUPERSEDED)
#endif

inline reserve() {
  reserved++;
  go(reserved, NONE, RESERVE, PENDING)
}

inline release(x) {                       /* a return to pending clears claim and checkpoint; doubt stays */
  token[x] = 0; leased[x] = false; checkpoint[x] = false; older[x] = false
}

inline in_doubt(x) {                      /* what an unknown outcome becomes */
  doubt[x] = true; evidence[x] = true;
  if
  :: LIVE(x) && claims[x] < CLAIMS && st[x] == PROCESSING -> go(x, PROCESSING, REPLAY, PENDING); release(x)
  :: LIVE(x) && claims[x] < CLAIMS && st[x] == POST_SENT -> go(x, POST_SENT, REPLAY, PENDING); release(x)
  :: !(LIVE(x) && claims[x] < CLAIMS) ->
#ifdef NO_PROOF
     if
     :: st[x] == PROCESSING -> go(x, PROCESSING, REJECT, TERMINAL_FAILED)
     :: st[x] == POST_SENT -> go(x, POST_SENT, REJECT, TERMINAL_FAILED)
     fi;
#else
     if
     :: st[x] == PROCESSING -> go(x, PROCESSING, UNKNOWN, AMBIGUOUS_REMOTE_EFFECT)
     :: st[x] == POST_SENT -> go(x, POST_SENT, UNKNOWN, AMBIGUOUS_REMOTE_EFFECT)
     fi;
#endif
     token[x] = 0; leased[x] = false
  fi
}

inline rest(me) {
  pc[me] = IDLE; on[me] = 0; mine[me] = 0; via[me] = 0; got[me] = 0; got_id[me] = 0; x = 0
}

inline clear(m) {
  slot[m] = EMPTY; about[m] = 0; answer[m] = 0; named[m] = 0; orphan[m] = false
}

proctype Save() {
  bool free;
#ifdef SNAPSHOT
  atomic { free = !link; SAY("@ a save reads its gates, link %d\n", link, 0) }
  atomic {
    if
    :: free && reserved < 2 && !OCCUPIES(1) && !OCCUPIES(2) -> reserve()
    :: else -> skip
    fi; free = false }
#else
  atomic {
    if
    :: !link && reserved < 2 && !OCCUPIES(1) && !OCCUPIES(2) -> reserve()
    :: else -> skip
    fi }
#endif
}

inline recover(x) {
  if
  :: st[x] == PROCESSING && !checkpoint[x] && !older[x] -> go(x, PROCESSING, RECOVER_UNSTARTED, PENDING); release(x)
  :: ANSWERABLE(x) && (checkpoint[x] || older[x] || st[x] == POST_SENT) -> in_doubt(x)
  :: st[x] == WRITEBACK_COMMIT_PENDING -> go(x, WRITEBACK_COMMIT_PENDING, PROMOTE, WRITEBACK_PENDING); token[x] = 0
  fi
}

inline claim(me, x) {
  if
  :: doubt[x] && !LIVE(x) -> evidence[x] = true; go(x, PENDING, DOUBT, AMBIGUOUS_REMOTE_EFFECT)
  :: !(doubt[x] && !LIVE(x)) && claims[x] == CLAIMS && !doubt[x] -> poison[x] = true
  :: !(doubt[x] && !LIVE(x)) && claims[x] == CLAIMS && doubt[x] -> evidence[x] = true; go(x, PENDING, DOUBT, AMBIGUOUS_REMOTE_EFFECT)
  :: !(doubt[x] && !LIVE(x)) && claims[x] < CLAIMS ->
     go(x, PENDING, CLAIM, PROCESSING); claims[x]++; token[x] = claims[x]; leased[x] = true;
     pc[me] = CLAIMED; on[me] = x; mine[me] = token[x]; SAY("@   by worker %d, token %d\n", me, mine[me])
  fi
}

inline write_back(x) {                    /* the claim of a mirror, and its end: no lease matters to a mirror */
  if
  :: !link -> link = true; link_id = id[x]; go(x, WRITEBACK_PENDING, MIRROR_SETTLED, FINALIZED)
  :: link && link_id == id[x] -> go(x, WRITEBACK_PENDING, MIRROR_SETTLED, FINALIZED)
  :: link && link_id != id[x] -> conflict[x] = true
  fi
}

inline post(me, m) {
  slot[m] = UNDERWAY; about[m] = on[me]; via[me] = m; pc[me] = WAITING; posts++;
  SAY("@ worker %d sends the POST of attempt %d\n", me, on[me])
}

proctype Worker(byte me) {
  byte x;
  do
  :: atomic { pc[me] == IDLE && (ANSWERABLE(1) || st[1] == WRITEBACK_COMMIT_PENDING) && !leased[1] -> recover(1) }
  :: atomic { pc[me] == IDLE && (ANSWERABLE(2) || st[2] == WRITEBACK_COMMIT_PENDING) && !leased[2] -> recover(2) }
  :: atomic { pc[me] == IDLE && st[1] == PENDING && !poison[1] -> claim(me, 1) }
  :: atomic { pc[me] == IDLE && st[2] == PENDING && !poison[2] -> claim(me, 2) }
  :: atomic { pc[me] == IDLE && st[1] == WRITEBACK_PENDING && !conflict[1] -> write_back(1) }
  :: atomic { pc[me] == IDLE && st[2] == WRITEBACK_PENDING && !conflict[2] -> write_back(2) }

  /* nothing was sent yet: give back, or find that the request is not valid */
  :: atomic { pc[me] == CLAIMED -> x = on[me];
       if
       :: st[x] == PROCESSING && OWNS(me, x) -> go(x, PROCESSING, GIVE_BACK, PENDING); release(x)
#ifdef NO_VALIDATION
       :: st[x] == PROCESSING && OWNS(me, x) -> go(x, PROCESSING, FAIL_VALIDATION, TERMINAL_FAILED); token[x] = 0; leased[x] = false
#else
       :: st[x] == PROCESSING && OWNS(me, x) && !doubt[x] -> go(x, PROCESSING, FAIL_VALIDATION, TERMINAL_FAILED); token[x] = 0; leased[x] = false
       :: st[x] == PROCESSING && OWNS(me, x) && doubt[x] -> evidence[x] = true; go(x, PROCESSING, DOUBT, AMBIGUOUS_REMOTE_EFFECT); token[x] = 0; leased[x] = false
#endif
       :: else -> skip
       fi; rest(me) }

  /* the checkpoint: commits, commits unknown to the worker, or does not commit */
  :: atomic { pc[me] == CLAIMED -> x = on[me];
       if
#ifndef NO_LIFETIME
       :: st[x] == PROCESSING && OWNS(me, x) && leased[x] && doubt[x] && !LIVE(x) ->
            evidence[x] = true; go(x, PROCESSING, DOUBT, AMBIGUOUS_REMOTE_EFFECT); token[x] = 0; leased[x] = false; rest(me)
       :: st[x] == PROCESSING && OWNS(me, x) && leased[x] && !(doubt[x] && !LIVE(x)) ->
#else
       :: st[x] == PROCESSING && OWNS(me, x) && leased[x] ->
#endif
            if
            :: checkpoint[x] = true; pc[me] = CHECKPOINTED; SAY("@ worker %d commits the checkpoint of %d\n", me, x)
            :: checkpoint[x] = true; SAY("@ worker %d does not learn that its checkpoint of %d was committed\n", me, x); rest(me)
            :: SAY("@ worker %d does not learn that its checkpoint of %d failed\n", me, x);
#ifdef NO_REREAD
               pc[me] = CHECKPOINTED
#else
               rest(me)
#endif
            fi
       :: else -> rest(me)
       fi }

  /* no statement of a database stands between the checkpoint and this */
  :: atomic { pc[me] == CHECKPOINTED && posts < POSTS && slot[0] == EMPTY -> post(me, 0) }
  :: atomic { pc[me] == CHECKPOINTED && posts < POSTS && slot[0] != EMPTY && slot[1] == EMPTY -> post(me, 1) }
  :: atomic { pc[me] == CHECKPOINTED && posts < POSTS && slot[0] != EMPTY && slot[1] != EMPTY && slot[2] == EMPTY -> post(me, 2) }
  :: atomic { pc[me] == CHECKPOINTED -> x = on[me];          /* refused connection: no byte left */
       if
       :: st[x] == PROCESSING && OWNS(me, x) -> go(x, PROCESSING, NOT_APPLIED, PENDING); release(x)
       :: else -> skip
       fi; rest(me) }

  :: atomic { pc[me] == WAITING && slot[via[me]] == REPLIED ->
       got[me] = answer[via[me]]; got_id[me] = named[via[me]]; clear(via[me]); pc[me] = ANSWERED }
  :: atomic { pc[me] == WAITING && slot[via[me]] == REPLY_LOST -> got[me] = BROKEN; clear(via[me]); pc[me] = ANSWERED }
  :: atomic { pc[me] == WAITING && slot[via[me]] == UNDERWAY ->                  /* the deadline; the request lives on */
       got[me] = BROKEN; orphan[via[me]] = true; pc[me] = ANSWERED }

  :: atomic { pc[me] == ANSWERED && got[me] != CREATED && st[on[me]] == PROCESSING && OWNS(me, on[me]) ->
       go(on[me], PROCESSING, ANSWER_STORED, POST_SENT) }

  :: atomic { pc[me] == ANSWERED && got[me] == CREATED -> x = on[me];
       SAY("@ worker %d holds the answer to %d\n", me, x);
       if
       :: ANSWERABLE(x) && OWNS(me, x) && (link || taken) ->
#ifdef NO_CONFLICT
            id_lost = true
#else
            id[x] = got_id[me]; conflict[x] = true; evidence[x] = true;
            if
            :: st[x] == PROCESSING -> go(x, PROCESSING, LOCATOR_TAKEN, WRITEBACK_PENDING)
            :: st[x] == POST_SENT -> go(x, POST_SENT, LOCATOR_TAKEN, WRITEBACK_PENDING)
            fi; token[x] = 0; leased[x] = false
#endif
            ; rest(me)
       :: ANSWERABLE(x) && OWNS(me, x) && !(link || taken) && mirror ->
            id[x] = got_id[me]; link = true; link_id = id[x];
            if
            :: st[x] == PROCESSING -> go(x, PROCESSING, LINK_FINALIZED, WRITEBACK_COMMIT_PENDING)
            :: st[x] == POST_SENT -> go(x, POST_SENT, LINK_FINALIZED, WRITEBACK_COMMIT_PENDING)
            fi; pc[me] = MIRRORING; got[me] = 0; got_id[me] = 0; via[me] = 0
       :: ANSWERABLE(x) && OWNS(me, x) && !(link || taken) && !mirror ->
            id[x] = got_id[me]; link = true; link_id = id[x];
            if
            :: st[x] == PROCESSING -> go(x, PROCESSING, LINK_FINALIZED_NO_MIRROR, FINALIZED)
            :: st[x] == POST_SENT -> go(x, POST_SENT, LINK_FINALIZED_NO_MIRROR, FINALIZED)
            fi; token[x] = 0; leased[x] = false; rest(me)
       :: !(ANSWERABLE(x) && OWNS(me, x)) ->
#ifdef NO_LATE
            id_lost = (id[x] == 0)
#else
            late[x] = got_id[me]; SAY("@ late evidence: attempt %d has id %d\n", x, late[x])
#endif
            ; rest(me)
       fi;
       assert(!id_lost) }

  :: atomic { pc[me] == MIRRORING -> x = on[me];
       if
       :: st[x] == WRITEBACK_COMMIT_PENDING && OWNS(me, x) -> go(x, WRITEBACK_COMMIT_PENDING, MIRROR_SETTLED, FINALIZED)
       :: st[x] == WRITEBACK_COMMIT_PENDING && OWNS(me, x) -> go(x, WRITEBACK_COMMIT_PENDING, MIRROR_FAILED, WRITEBACK_PENDING)
       :: else -> skip
       fi; token[x] = 0; leased[x] = false; rest(me) }

  :: atomic { pc[me] == ANSWERED && got[me] == REFUSED -> x = on[me];
       if
#ifdef NO_STICKY
       :: ANSWERABLE(x) && OWNS(me, x) ->
#else
       :: ANSWERABLE(x) && OWNS(me, x) && doubt[x] -> in_doubt(x)
       :: ANSWERABLE(x) && OWNS(me, x) && !doubt[x] ->
#endif
            if
            :: st[x] == PROCESSING -> go(x, PROCESSING, REJECT, TERMINAL_FAILED); token[x] = 0; leased[x] = false
            :: st[x] == POST_SENT -> go(x, POST_SENT, REJECT, TERMINAL_FAILED); token[x] = 0; leased[x] = false
            :: st[x] == PROCESSING -> go(x, PROCESSING, NOT_APPLIED, PENDING); release(x)
            :: st[x] == POST_SENT -> go(x, POST_SENT, NOT_APPLIED, PENDING); release(x)
            fi
       :: else -> skip
       fi; rest(me) }

  :: atomic { pc[me] == ANSWERED && got[me] == BROKEN -> x = on[me];
       if
       :: ANSWERABLE(x) && OWNS(me, x) -> in_doubt(x)
       :: else -> skip
       fi; rest(me) }

  /* kill -9; what is on the wire goes on */
  :: atomic { pc[me] != IDLE && crashes < CRASHES -> crashes++; SAY("@ worker %d is killed\n", me, 0);
       if
       :: pc[me] == WAITING && slot[via[me]] == UNDERWAY -> orphan[via[me]] = true
       :: pc[me] == WAITING && slot[via[me]] != UNDERWAY -> clear(via[me])
       :: else -> skip
       fi; rest(me) }
  od
}

proctype Clock() {
  do
  :: atomic { leased[1] -> leased[1] = false; SAY("@ the lease on attempt %d ends\n", 1, 0) }
  :: atomic { leased[2] -> leased[2] = false; SAY("@ the lease on attempt %d ends\n", 2, 0) }
#ifdef CONTRACT
  /* a key lives longer than a pause and a request together, so it is never forgotten under a running send */
  :: atomic { doubt[1] && !forgotten[1] && QUIET(1) -> forgotten[1] = true; SAY("@ the remote forgets the key of %d\n", 1, 0) }
  :: atomic { doubt[2] && !forgotten[2] && QUIET(2) -> forgotten[2] = true; SAY("@ the remote forgets the key of %d\n", 2, 0) }
#endif
  od
}

/* A replica without the newest commits takes over: a checkpoint is gone, the claim is still there. */
proctype Failover() {
  if
  :: atomic { failovers < FAILOVERS && st[1] == PROCESSING && checkpoint[1] -> failovers++; checkpoint[1] = false;
       SAY("@ failover: the checkpoint of attempt %d is lost\n", 1, 0);
#ifndef NO_TIMELINE
       older[1] = true
#else
       skip
#endif
     }
  :: atomic { st[1] == FINALIZED -> skip }
  fi
}

/* A backup from just after the save is restored; every process is stopped first, the remote remembers. */
proctype Restore() {
  if
  :: atomic { !restored && reserved == 1 && st[1] != PENDING && pc[0] == IDLE && pc[1] == IDLE -> restored = true;
       SAY("@ restore: attempt %d is pending again\n", 1, 0);
       st[1] = PENDING; claims[1] = 0; token[1] = 0; leased[1] = false; checkpoint[1] = false; id[1] = 0; late[1] = 0;
       evidence[1] = false; conflict[1] = false; poison[1] = false; older[1] = false; link = false; link_id = 0;
#ifndef NO_RESTORED
       doubt[1] = true
#else
       doubt[1] = false
#endif
     }
  :: atomic { reserved == 2 -> skip }
  fi
}

inline reply(m, what, which) {
  if
  :: orphan[m] -> clear(m)
  :: !orphan[m] -> slot[m] = REPLIED; answer[m] = what; named[m] = which
  :: !orphan[m] -> slot[m] = REPLY_LOST
  fi
}

inline serve(m) {
  if
  :: true ->
       if
#ifdef CONTRACT
       :: made[about[m]] != 0 && !forgotten[about[m]] -> skip                    /* the same key, the same record */
       :: !(made[about[m]] != 0 && !forgotten[about[m]]) -> records++; made[about[m]] = records
#else
       :: records++; made[about[m]] = records
#endif
       fi;
       SAY("@ remote: the POST of attempt %d; records %d\n", about[m], records);
       assert(records <= 1 + disposed);                                         /* never a second record */
       if :: reply(m, CREATED, made[about[m]]) :: reply(m, BROKEN, 0) fi
  :: made[about[m]] == 0 -> reply(m, REFUSED, 0)
#ifdef CONTRACT
  :: made[about[m]] != 0 -> reply(m, REFUSED, 0)                                /* the echo of our own first send */
#endif
  :: reply(m, BROKEN, 0)                                                        /* lost before it was applied */
  fi
}

proctype Remote() {
  do
  :: atomic { slot[0] == UNDERWAY -> serve(0) }
  :: atomic { slot[1] == UNDERWAY -> serve(1) }
  :: atomic { slot[2] == UNDERWAY -> serve(2) }
  od
}

inline operate(x) {
  if
  :: st[x] == AMBIGUOUS_REMOTE_EFFECT && made[x] != 0 -> id[x] = made[x]; go(x, AMBIGUOUS_REMOTE_EFFECT, ADOPT, WRITEBACK_PENDING)
  :: st[x] == AMBIGUOUS_REMOTE_EFFECT && made[x] != 0 -> id[x] = made[x]; go(x, AMBIGUOUS_REMOTE_EFFECT, STAMP_FOUND, WRITEBACK_PENDING)
  :: st[x] == AMBIGUOUS_REMOTE_EFFECT && made[x] == 0 && late[x] == 0 && SETTLED(x) -> go(x, AMBIGUOUS_REMOTE_EFFECT, CONFIRM_ABSENT, TERMINAL_FAILED)
  :: st[x] == AMBIGUOUS_REMOTE_EFFECT && LIVE(x) && claims[x] < CLAIMS -> go(x, AMBIGUOUS_REMOTE_EFFECT, REPLAY_EXPLICIT, PENDING); release(x)
  :: st[x] == TERMINAL_FAILED && late[x] != 0 -> id[x] = late[x]; go(x, TERMINAL_FAILED, ADOPT, WRITEBACK_PENDING)
  :: st[x] == TERMINAL_FAILED && id[x] == 0 && late[x] == 0 -> go(x, TERMINAL_FAILED, SUPERSEDE, SUPERSEDED);
       if :: reserved < 2 && !link && !OCCUPIES(1) && !OCCUPIES(2) -> reserve() :: else -> skip fi
  :: st[x] == PENDING && poison[x] && !doubt[x] -> go(x, PENDING, END_UNSENT, TERMINAL_FAILED)
  :: st[x] == WRITEBACK_PENDING && conflict[x] -> id[x] = 0; disposed = (taken -> disposed + 1 : disposed); conflict[x] = false; go(x, WRITEBACK_PENDING, DISPOSE, TERMINAL_FAILED)
#ifdef NO_HELDONLY
  :: st[x] == WRITEBACK_PENDING && !conflict[x] && !link -> id[x] = 0; go(x, WRITEBACK_PENDING, DISPOSE, TERMINAL_FAILED)
#endif
  fi
}

#define ON_LIST(x) (st[x] == AMBIGUOUS_REMOTE_EFFECT || st[x] == TERMINAL_FAILED || (st[x] == WRITEBACK_PENDING) || (st[x] == PENDING && poison[x] && !doubt[x]))
proctype Operator() {
  do
  :: atomic { ON_LIST(1) -> operate(1) }
  :: atomic { ON_LIST(2) -> operate(2) }
  od
}

#define AT_REST(x) (st[x] == NONE || st[x] == FINALIZED || st[x] == TERMINAL_FAILED || st[x] == SUPERSEDED || (st[x] == AMBIGUOUS_REMOTE_EFFECT && evidence[x]) || (st[x] == PENDING && poison[x]))
active proctype Judge() {
  do
  :: timeout ->                            /* nothing can happen any more */
       assert(AT_REST(1) && AT_REST(2));
       assert(!(st[1] == FINALIZED && st[2] == FINALIZED));
       assert(!(st[1] == FINALIZED || st[2] == FINALIZED) || (link && link_id != 0));
       break
  od
}

init {
  atomic {
    if :: taken = true :: taken = false fi;
    if :: mirror = true :: mirror = false fi;
    run Save(); run Save(); run Worker(0); run Worker(1); run Clock(); run Remote(); run Operator();
#ifdef FAILING_OVER
    run Failover();
#endif
#ifdef RESTORING
    run Restore();
#endif
    skip
  }
}

#ifdef REACH
ltl reach { [] !(REACH) }
#else
#define EXPLAINED(x) (st[x] != AMBIGUOUS_REMOTE_EFFECT || evidence[x])
#define OPEN(x) (st[x] == PENDING || st[x] == PROCESSING || st[x] == POST_SENT || st[x] == AMBIGUOUS_REMOTE_EFFECT || st[x] == WRITEBACK_COMMIT_PENDING || st[x] == WRITEBACK_PENDING)
ltl safe { [] (EXPLAINED(1) && EXPLAINED(2) && !(OPEN(1) && OPEN(2)) && (!link || link_id != 0) && !(link && OPEN(1) && st[1] != WRITEBACK_COMMIT_PENDING && st[1] != WRITEBACK_PENDING)) }
#endif
