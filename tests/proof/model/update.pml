/*
 * One finalized link's updates: saves, workers, an operator, a manifest, and a remote that keeps the last value it got.
 *
 * Steps, leases and `go` are as in create.pml. Versions are numbers; the remote's value is the version that it applied
 * last. The danger is a remote that ends with an older version than the one we call acknowledged.
 *
 *   FENCE     an owner's write is a compare-and-set on the token of its claim                          (D-12)
 *   SENT      an update acknowledges the version that it sent, not the newest that is wanted           (D-19)
 *   WANTED    a save behind a running update records its version                                       (D-19)
 *   ONE       one update in flight per link                                                            (D-19)
 *   BLOCK     an update in doubt blocks later ones                                                     (D-20)
 *   SETTLE    an update in doubt is judged only when its bytes can no longer arrive                    (D-08, D-20)
 *   AGAIN     the checkpoint checks link and mapping generation again                                  (D-21)
 *   STANDS    a manifest is stopped by an update whose bytes may be on the wire                        (D-21)
 *   REFUSED   a refused version is not sent again by itself                                            (D-19)
 */
#ifndef CLAIMS
#define CLAIMS 3
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef SAVES
#define SAVES 2
#endif
#define ROWS 3
#define MESSAGES 3

mtype = { NONE, PENDING, PROCESSING, POST_SENT, AMBIGUOUS_REMOTE_EFFECT, FINALIZED, TERMINAL_FAILED, SUPERSEDED, SUSPENDED_DRIFT, RETIRED };
mtype = {
  RESERVE, CLAIM, REPLACE, OBSOLETE, RECOVER_UNSTARTED, RECOVER_UNAUTHORISED, GIVE_BACK, FAIL_VALIDATION, ANSWER_STORED,
  NOT_APPLIED, APPLIED, REJECT, REMOTE_GONE, REMOTE_CONFLICT, UNKNOWN, SETTLE_APPLIED, RESEND, LINK_RETIRED };
mtype = { SUSPEND, REVALIDATE, RETIRE };                                       /* events of the link */
mtype = { IDLE, CLAIMED, CHECKPOINTED, WAITING, ANSWERED };
mtype = { EMPTY, UNDERWAY, REPLIED, REPLY_LOST };
mtype = { DONE, REFUSAL, GONE, MISMATCH, BROKEN };

/* the database: rows 1..3, the slot, the link */
mtype st[4] = NONE; byte carries[4]; byte token[4]; byte claims[4]; bool leased[4]; bool checkpoint[4]; bool doubt[4]; byte frozen_under[4];
bool poison[4]; byte rows = 0;
byte wanted = 0; byte acknowledged = 0; byte refused = 0; byte stale = 0;       /* stale: wanted under a mapping that is gone */
byte wanted_under = 0;
mtype link = FINALIZED; byte mapping = 1;
/* the remote and the network */
byte value = 0; byte rejects = 0;                                               /* the version that the remote will not take */
mtype slot[MESSAGES] = EMPTY; byte holds[MESSAGES]; byte about[MESSAGES]; mtype answer[MESSAGES]; bool orphan[MESSAGES];
/* the workers */
mtype pc[2] = IDLE; byte on[2]; byte mine[2]; byte via[2]; mtype got[2];
byte crashes = 0; byte manifests = 0; bool suspended_once = false;
byte newest = 0;                                                                /* ghost: the newest version anybody saved */

#ifdef TRACE
#define SAY(text, a, b) printf(text, a, b)
#else
#define SAY(text, a, b) skip
#endif
inline go(x, from, event, to) { assert(st[x] == from); st[x] = to; SAY("@ update %d: %e\n", x, event) }
inline move(from, event, to) { assert(link == from); link = to; SAY("@ link: %e\n", event, 0) }

#ifdef NO_FENCE
#define OWNS(me, x) (true)
#else
#define OWNS(me, x) (token[x] != 0 && token[x] == mine[me])
#endif
#define ANSWERABLE(x) (st[x] == PROCESSING || st[x] == POST_SENT)
#ifdef NO_ONE
#define IS_OPEN(x) (st[x] == PENDING)
#else
#ifdef NO_BLOCK
#define IS_OPEN(x) (st[x] == PENDING || st[x] == PROCESSING || st[x] == POST_SENT)
#else
#define IS_OPEN(x) (st[x] == PENDING || st[x] == PROCESSING || st[x] == POST_SENT || st[x] == AMBIGUOUS_REMOTE_EFFECT)
#endif
#endif
#define ANY_OPEN (IS_OPEN(1) || IS_OPEN(2) || IS_OPEN(3))
#define IN_FLIGHT(x) (st[x] == PROCESSING || st[x] == POST_SENT || st[x] == AMBIGUOUS_REMOTE_EFFECT)
#define MAY_SEND(me, x) ((pc[me] == CHECKPOINTED || pc[me] == WAITING || pc[me] == ANSWERED) && on[me] == x)
#define ON_WIRE(x) ((slot[0] == UNDERWAY && about[0] == x) || (slot[1] == UNDERWAY && about[1] == x) || (slot[2] == UNDERWAY && about[2] == x))
#ifdef NO_SETTLE
#define SETTLED(x) (true)
#else
#define SETTLED(x) (!MAY_SEND(0, x) && !MAY_SEND(1, x) && !ON_WIRE(x))
#endif
#ifdef NO_REFUSED
#define DUE (wanted > acknowledged && wanted != stale && link == FINALIZED)
#else
#define DUE (wanted > acknowledged && wanted != refused && wanted != stale && link == FINALIZED)
#endif

inline release(x) { token[x] = 0; leased[x] = false; checkpoint[x] = false }
inline make_due() {                       /* the due update, made in the transaction that makes it due */
  if
  :: DUE && !ANY_OPEN && rows < ROWS -> rows++; go(rows, NONE, RESERVE, PENDING)
  :: else -> skip
  fi
}
inline rest(me) { pc[me] = IDLE; on[me] = 0; mine[me] = 0; via[me] = 0; got[me] = 0; x = 0 }
inline clear(m) { slot[m] = EMPTY; holds[m] = 0; about[m] = 0; answer[m] = 0; orphan[m] = false }
inline unknown(x) {
  doubt[x] = true;
  if
  :: st[x] == PROCESSING -> go(x, PROCESSING, UNKNOWN, AMBIGUOUS_REMOTE_EFFECT)
  :: st[x] == POST_SENT -> go(x, POST_SENT, UNKNOWN, AMBIGUOUS_REMOTE_EFFECT)
  fi; token[x] = 0; leased[x] = false
}

proctype Save() {
  byte n = 0;
  do
  :: n < SAVES -> atomic {
       n++; newest++;
       if
#ifdef NO_WANTED
       :: ANY_OPEN -> SAY("@ a save behind an open update is dropped\n", 0, 0)
       :: !ANY_OPEN && link != RETIRED ->
#else
       :: link == RETIRED -> skip
       :: link != RETIRED ->
#endif
            wanted = newest; wanted_under = mapping; SAY("@ save: version %d is wanted\n", wanted, 0);
            if
            :: st[1] == PENDING && claims[1] != 0 && !doubt[1] -> go(1, PENDING, REPLACE, SUPERSEDED)
            :: st[2] == PENDING && claims[2] != 0 && !doubt[2] -> go(2, PENDING, REPLACE, SUPERSEDED)
            :: else -> skip
            fi;
            make_due()
       fi }
  :: n == SAVES -> break
  od
}

inline recover(x) {
  if
  :: st[x] == PROCESSING && !checkpoint[x] && !doubt[x] -> go(x, PROCESSING, RECOVER_UNSTARTED, PENDING); release(x)
  :: st[x] == PROCESSING && !checkpoint[x] && !doubt[x] -> doubt[x] = true; go(x, PROCESSING, RECOVER_UNAUTHORISED, AMBIGUOUS_REMOTE_EFFECT); release(x)
  :: st[x] == POST_SENT || checkpoint[x] || doubt[x] -> unknown(x)
  fi
}

inline claim(me, x) {
  if
  :: link != FINALIZED && !doubt[x] -> go(x, PENDING, OBSOLETE, SUPERSEDED)
  :: link == FINALIZED && claims[x] == CLAIMS -> poison[x] = true
  :: link == FINALIZED && claims[x] < CLAIMS ->
       go(x, PENDING, CLAIM, PROCESSING); claims[x]++; token[x] = claims[x]; leased[x] = true;
       if :: claims[x] == 1 -> carries[x] = wanted; frozen_under[x] = wanted_under :: else -> skip fi;
       pc[me] = CLAIMED; on[me] = x; mine[me] = token[x]; SAY("@   worker %d, version %d\n", me, carries[x])
  fi
}

inline put(me, m) {
  slot[m] = UNDERWAY; about[m] = on[me]; holds[m] = carries[on[me]]; via[me] = m; pc[me] = WAITING;
  SAY("@ worker %d sends version %d\n", me, carries[on[me]]);
  assert(carries[on[me]] != refused || claims[on[me]] > 1);                     /* not the refused body again by itself */
  assert(frozen_under[on[me]] == mapping)                                       /* not a body of a mapping that is gone */
}

proctype Worker(byte me) {
  byte x;
  do
  :: atomic { pc[me] == IDLE && ANSWERABLE(1) && !leased[1] -> recover(1) }
  :: atomic { pc[me] == IDLE && ANSWERABLE(2) && !leased[2] -> recover(2) }
  :: atomic { pc[me] == IDLE && ANSWERABLE(3) && !leased[3] -> recover(3) }
  :: atomic { pc[me] == IDLE && st[1] == PENDING && !poison[1] -> claim(me, 1) }
  :: atomic { pc[me] == IDLE && st[2] == PENDING && !poison[2] -> claim(me, 2) }
  :: atomic { pc[me] == IDLE && st[3] == PENDING && !poison[3] -> claim(me, 3) }

  :: atomic { pc[me] == CLAIMED -> x = on[me];
       if
       :: st[x] == PROCESSING && OWNS(me, x) -> go(x, PROCESSING, GIVE_BACK, PENDING); release(x)
       :: st[x] == PROCESSING && OWNS(me, x) && !doubt[x] -> go(x, PROCESSING, FAIL_VALIDATION, TERMINAL_FAILED); release(x); refused = carries[x]; make_due()
       :: st[x] == PROCESSING && OWNS(me, x) && !doubt[x] && link != FINALIZED -> go(x, PROCESSING, OBSOLETE, SUPERSEDED); release(x)
       :: else -> skip
       fi; rest(me) }
  :: atomic { pc[me] == CLAIMED -> x = on[me];
       if
#ifdef NO_AGAIN
       :: st[x] == PROCESSING && OWNS(me, x) && leased[x] ->
#else
       :: st[x] == PROCESSING && OWNS(me, x) && leased[x] && (link != FINALIZED || frozen_under[x] != mapping) && !doubt[x] ->
            go(x, PROCESSING, OBSOLETE, SUPERSEDED); release(x); stale = (frozen_under[x] != mapping -> carries[x] : stale); rest(me); make_due()
       :: st[x] == PROCESSING && OWNS(me, x) && leased[x] && link == FINALIZED && frozen_under[x] == mapping ->
#endif
            assert(link == FINALIZED);                                          /* nothing is begun for a link that does not stand */
            if
            :: checkpoint[x] = true; pc[me] = CHECKPOINTED; SAY("@ worker %d commits the checkpoint of %d\n", me, x)
            :: checkpoint[x] = true; rest(me)
            :: rest(me)
            fi
       :: else -> rest(me)
       fi }
  :: atomic { pc[me] == CHECKPOINTED && slot[0] == EMPTY -> put(me, 0) }
  :: atomic { pc[me] == CHECKPOINTED && slot[0] != EMPTY && slot[1] == EMPTY -> put(me, 1) }
  :: atomic { pc[me] == CHECKPOINTED && slot[0] != EMPTY && slot[1] != EMPTY && slot[2] == EMPTY -> put(me, 2) }
  :: atomic { pc[me] == CHECKPOINTED -> x = on[me];
       if
       :: st[x] == PROCESSING && OWNS(me, x) -> go(x, PROCESSING, NOT_APPLIED, PENDING); release(x)
       :: else -> skip
       fi; rest(me) }
  :: atomic { pc[me] == WAITING && slot[via[me]] == REPLIED -> got[me] = answer[via[me]]; clear(via[me]); pc[me] = ANSWERED }
  :: atomic { pc[me] == WAITING && slot[via[me]] == REPLY_LOST -> got[me] = BROKEN; clear(via[me]); pc[me] = ANSWERED }
  :: atomic { pc[me] == WAITING && slot[via[me]] == UNDERWAY -> got[me] = BROKEN; orphan[via[me]] = true; pc[me] = ANSWERED }
  :: atomic { pc[me] == ANSWERED && st[on[me]] == PROCESSING && OWNS(me, on[me]) -> go(on[me], PROCESSING, ANSWER_STORED, POST_SENT) }
  :: atomic { pc[me] == ANSWERED && !(ANSWERABLE(on[me]) && OWNS(me, on[me])) -> rest(me) }
  :: atomic { pc[me] == ANSWERED && ANSWERABLE(on[me]) && OWNS(me, on[me]) -> x = on[me];
       if
       :: got[me] == DONE ->
#ifdef NO_SENT
            acknowledged = wanted;
#else
            acknowledged = carries[x];
#endif
            if :: st[x] == PROCESSING -> go(x, PROCESSING, APPLIED, FINALIZED) :: st[x] == POST_SENT -> go(x, POST_SENT, APPLIED, FINALIZED) fi;
            token[x] = 0; leased[x] = false; make_due()
       :: got[me] != DONE && got[me] != BROKEN ->
            if
            :: got[me] == REFUSAL && st[x] == PROCESSING -> go(x, PROCESSING, REJECT, TERMINAL_FAILED); refused = carries[x]; token[x] = 0; leased[x] = false; make_due()
            :: got[me] == REFUSAL && st[x] == POST_SENT -> go(x, POST_SENT, REJECT, TERMINAL_FAILED); refused = carries[x]; token[x] = 0; leased[x] = false; make_due()
            :: got[me] == REFUSAL && st[x] == PROCESSING -> go(x, PROCESSING, NOT_APPLIED, PENDING); release(x)
            :: got[me] == REFUSAL && st[x] == POST_SENT -> go(x, POST_SENT, NOT_APPLIED, PENDING); release(x)
            :: got[me] == GONE && st[x] == PROCESSING -> go(x, PROCESSING, REMOTE_GONE, TERMINAL_FAILED); token[x] = 0; leased[x] = false
            :: got[me] == GONE && st[x] == POST_SENT -> go(x, POST_SENT, REMOTE_GONE, TERMINAL_FAILED); token[x] = 0; leased[x] = false
            :: got[me] == MISMATCH && st[x] == PROCESSING -> go(x, PROCESSING, REMOTE_CONFLICT, TERMINAL_FAILED); token[x] = 0; leased[x] = false
            :: got[me] == MISMATCH && st[x] == POST_SENT -> go(x, POST_SENT, REMOTE_CONFLICT, TERMINAL_FAILED); token[x] = 0; leased[x] = false
            fi;
            if :: (got[me] == GONE || got[me] == MISMATCH) && link == FINALIZED -> move(FINALIZED, SUSPEND, SUSPENDED_DRIFT) :: else -> skip fi
       :: got[me] == BROKEN -> unknown(x)
       fi; rest(me) }
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
  :: atomic { leased[1] -> leased[1] = false }
  :: atomic { leased[2] -> leased[2] = false }
  :: atomic { leased[3] -> leased[3] = false }
  od
}

inline reply(m, what) {
  if
  :: orphan[m] -> clear(m)
  :: !orphan[m] -> slot[m] = REPLIED; answer[m] = what
  :: !orphan[m] -> slot[m] = REPLY_LOST
  fi
}
inline serve(m) {
  if
  :: holds[m] != rejects -> value = holds[m]; SAY("@ remote: has version %d\n", value, 0); reply(m, DONE)
  :: holds[m] != rejects -> value = holds[m]; reply(m, BROKEN)
  :: reply(m, REFUSAL)
  :: reply(m, BROKEN)
  :: !suspended_once -> suspended_once = true; reply(m, GONE)
  :: !suspended_once -> suspended_once = true; reply(m, MISMATCH)
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
  :: value == carries[x] && SETTLED(x) -> go(x, AMBIGUOUS_REMOTE_EFFECT, SETTLE_APPLIED, FINALIZED); acknowledged = carries[x]; make_due()
  :: value != carries[x] && SETTLED(x) -> go(x, AMBIGUOUS_REMOTE_EFFECT, RESEND, SUPERSEDED); make_due()
  fi
}
proctype Operator() {
  do
  :: atomic { st[1] == AMBIGUOUS_REMOTE_EFFECT && (link == FINALIZED) && SETTLED(1) -> operate(1) }
  :: atomic { st[2] == AMBIGUOUS_REMOTE_EFFECT && (link == FINALIZED) && SETTLED(2) -> operate(2) }
  :: atomic { link == FINALIZED && !suspended_once -> suspended_once = true; move(FINALIZED, SUSPEND, SUSPENDED_DRIFT) }
  :: atomic { link == SUSPENDED_DRIFT -> move(SUSPENDED_DRIFT, REVALIDATE, FINALIZED); make_due() }
  od
}
#ifdef RETIRING
proctype Retire() {
  if
  :: atomic { link == FINALIZED || link == SUSPENDED_DRIFT ->
       if :: link == FINALIZED -> move(FINALIZED, RETIRE, RETIRED) :: link == SUSPENDED_DRIFT -> move(SUSPENDED_DRIFT, RETIRE, RETIRED) fi;
       if :: st[1] == PENDING -> go(1, PENDING, LINK_RETIRED, SUPERSEDED) :: st[1] == AMBIGUOUS_REMOTE_EFFECT -> go(1, AMBIGUOUS_REMOTE_EFFECT, LINK_RETIRED, SUPERSEDED) :: else -> skip fi;
       if :: st[2] == PENDING -> go(2, PENDING, LINK_RETIRED, SUPERSEDED) :: st[2] == AMBIGUOUS_REMOTE_EFFECT -> go(2, AMBIGUOUS_REMOTE_EFFECT, LINK_RETIRED, SUPERSEDED) :: else -> skip fi }
  :: true -> skip
  fi
}
#endif
#ifdef MANIFEST
proctype Manifest() {                     /* accepts a new mapping for the link */
  if
#ifdef NO_STANDS
  :: atomic { manifests == 0 && link == FINALIZED && wanted > 0 ->
#else
  :: atomic { manifests == 0 && link == FINALIZED && wanted > 0 && !IN_FLIGHT(1) && !IN_FLIGHT(2) && !IN_FLIGHT(3) ->
#endif
       manifests++; mapping++; stale = (wanted > acknowledged && wanted_under != mapping -> wanted : stale);
       SAY("@ manifest: mapping %d\n", mapping, 0);
       if
       :: st[1] == PENDING -> go(1, PENDING, OBSOLETE, SUPERSEDED)
       :: st[2] == PENDING -> go(2, PENDING, OBSOLETE, SUPERSEDED)
       :: st[3] == PENDING -> go(3, PENDING, OBSOLETE, SUPERSEDED)
       :: else -> skip
       fi }
  :: true -> skip
  fi
}
#endif

#define AT_REST(x) (st[x] == NONE || st[x] == FINALIZED || st[x] == TERMINAL_FAILED || st[x] == SUPERSEDED || st[x] == AMBIGUOUS_REMOTE_EFFECT || (st[x] == PENDING && poison[x]))
#define WAITS (st[1] == AMBIGUOUS_REMOTE_EFFECT || st[2] == AMBIGUOUS_REMOTE_EFFECT || st[3] == AMBIGUOUS_REMOTE_EFFECT || poison[1] || poison[2] || poison[3] || rows == ROWS || link != FINALIZED)
active proctype Judge() {
  do
  :: timeout ->
       assert(AT_REST(1) && AT_REST(2) && AT_REST(3));
       assert(WAITS || newest == refused || newest == stale || (acknowledged == newest && value == newest));
       break
  od
}

init {
  atomic {
    if :: rejects = 0 :: rejects = 1 :: rejects = 2 fi;
    run Save(); run Worker(0); run Worker(1); run Clock(); run Remote(); run Operator();
#ifdef RETIRING
    run Retire();
#endif
#ifdef MANIFEST
    run Manifest();
#endif
    skip
  }
}

#ifdef REACH
ltl reach { [] !(REACH) }
#else
#define SENDING(me) (pc[me] == WAITING)
ltl safe { [] !(SENDING(0) && SENDING(1) && on[0] != on[1]) }
#endif
