/*
 * Deferred associations, and who may take which row. The general worker is off: both workers are narrow ones.
 *
 * Rows 0 and 1 are creates of the deferred lane. Either both wait for one parent, which may finalize, be rebound, be
 * retired or fail; or they wait for each other. Row 2 is of the `configured` lane, row 3 of a lane that nobody knows;
 * both lost their worker. A checkpoint and its POST are one step here: create.pml looks between them.
 *
 *   LANES    claim and recovery name the lanes that they may take                        (DL-08, D-39)
 *   TARGET   the checkpoint's transaction checks the association's target again          (D-21)
 *   BLOCKED  a child whose parent can never finalize says so                             (D-30, D-31)
 *   CYCLE    children that wait for each other say so                                    (D-30)
 *   SPLIT    a row that cannot be read does not stop the rows beside it                  (D-17)
 */
mtype = { PENDING, PROCESSING, AMBIGUOUS_REMOTE_EFFECT, FINALIZED };
mtype = { CLAIM, RECOVER_UNSTARTED, GIVE_BACK, LINK_FINALIZED_NO_MIRROR, UNKNOWN };
mtype = { CONFIGURED, DEFERRED_ASSOCIATION, OTHER };
mtype = { NOT_YET, STANDS, RETIRED, NEVER };                                    /* what the parent's link does */
mtype = { FREE, ASSOCIATION_BLOCKED, ASSOCIATION_MOVED };                       /* holds */
#define CLAIMS 3

mtype st[4] = PENDING; mtype lane[4]; mtype hold[4] = FREE; byte token[4]; byte claims[4]; bool leased[4]; bool touched[4];
bool cycle; mtype parent = NOT_YET; byte parent_id = 1;
bool busy[2]; byte on[2]; byte mine[2]; byte froze[2];
bool wrong_target = false;

#ifdef TRACE
#define SAY(text, a, b) printf(text, a, b)
#else
#define SAY(text, a, b) skip
#endif
inline go(x, from, event, to) { assert(st[x] == from); st[x] = to; touched[x] = true; SAY("@ row %d: %e\n", x, event) }

#ifdef NO_LANES
#define MAY_TAKE(x) (lane[x] != CONFIGURED)
#else
#define MAY_TAKE(x) (lane[x] == DEFERRED_ASSOCIATION)
#endif
#define READY(x) ((!cycle && parent == STANDS) || (cycle && st[1 - (x)] == FINALIZED))
#ifdef NO_SPLIT
#define SCANS (st[3] != PROCESSING)                                             /* row 3 breaks every scan that meets it */
#else
#define SCANS (true)
#endif

proctype Parent() {
  if
  :: atomic { parent = STANDS; SAY("@ the parent's link stands\n", 0, 0) };
     do
     :: atomic { parent_id == 1 -> parent_id = 2; SAY("@ the parent's link has another remote id\n", 0, 0) }
     :: atomic { parent = RETIRED; SAY("@ the parent's link is retired\n", 0, 0); break }
     :: break
     od
  :: atomic { parent = NEVER; SAY("@ the parent's create ends without a link\n", 0, 0) }
  fi
}

inline claim(me, x) {
  go(x, PENDING, CLAIM, PROCESSING); claims[x]++; token[x] = claims[x]; leased[x] = true;
  busy[me] = true; on[me] = x; mine[me] = token[x]; froze[me] = parent_id
}

proctype Worker(byte me) {
  byte x;
  do
  :: atomic { !busy[me] && SCANS && st[0] == PENDING && hold[0] == FREE && READY(0) && claims[0] < CLAIMS -> claim(me, 0) }
  :: atomic { !busy[me] && SCANS && st[1] == PENDING && hold[1] == FREE && READY(1) && claims[1] < CLAIMS -> claim(me, 1) }
  :: atomic { !busy[me] && MAY_TAKE(0) && st[0] == PROCESSING && !leased[0] -> go(0, PROCESSING, RECOVER_UNSTARTED, PENDING); token[0] = 0 }
  :: atomic { !busy[me] && MAY_TAKE(1) && st[1] == PROCESSING && !leased[1] -> go(1, PROCESSING, RECOVER_UNSTARTED, PENDING); token[1] = 0 }
  :: atomic { !busy[me] && MAY_TAKE(2) && st[2] == PROCESSING && !leased[2] -> go(2, PROCESSING, RECOVER_UNSTARTED, PENDING) }
  :: atomic { !busy[me] && MAY_TAKE(3) && st[3] == PROCESSING && !leased[3] -> go(3, PROCESSING, RECOVER_UNSTARTED, PENDING) }
#ifndef NO_BLOCKED
  :: atomic { st[0] == PENDING && hold[0] == FREE && !cycle && parent == NEVER -> hold[0] = ASSOCIATION_BLOCKED }
  :: atomic { st[1] == PENDING && hold[1] == FREE && !cycle && parent == NEVER -> hold[1] = ASSOCIATION_BLOCKED }
  :: atomic { st[0] == PENDING && hold[0] == FREE && !cycle && parent == RETIRED -> hold[0] = ASSOCIATION_MOVED }
  :: atomic { st[1] == PENDING && hold[1] == FREE && !cycle && parent == RETIRED -> hold[1] = ASSOCIATION_MOVED }
#endif
#ifndef NO_CYCLE
  :: atomic { cycle && st[0] == PENDING && hold[0] == FREE -> hold[0] = ASSOCIATION_BLOCKED; hold[1] = ASSOCIATION_BLOCKED }
#endif
  :: atomic { busy[me] -> x = on[me];
       if
#ifdef NO_TARGET
       :: st[x] == PROCESSING && token[x] == mine[me] ->
#else
       :: st[x] == PROCESSING && token[x] == mine[me] && !cycle && !(parent == STANDS && parent_id == froze[me]) -> go(x, PROCESSING, GIVE_BACK, PENDING); token[x] = 0
       :: st[x] == PROCESSING && token[x] == mine[me] && (cycle || (parent == STANDS && parent_id == froze[me])) ->
#endif
            SAY("@ worker %d posts row %d\n", me, x);
            wrong_target = !(cycle || (parent == STANDS && parent_id == froze[me]));
            assert(!wrong_target);
            if
            :: go(x, PROCESSING, LINK_FINALIZED_NO_MIRROR, FINALIZED)
            :: go(x, PROCESSING, UNKNOWN, AMBIGUOUS_REMOTE_EFFECT)
            fi; token[x] = 0; leased[x] = false
       :: else -> skip
       fi; busy[me] = false; on[me] = 0; mine[me] = 0; froze[me] = 0; x = 0 }
  od
}

proctype Clock() {
  do
  :: atomic { leased[0] -> leased[0] = false }
  :: atomic { leased[1] -> leased[1] = false }
  od
}

#define ANSWERED(x) (st[x] == FINALIZED || st[x] == AMBIGUOUS_REMOTE_EFFECT || (st[x] == PENDING && (hold[x] != FREE || claims[x] == CLAIMS)))
active proctype Judge() {
  do
  :: timeout -> assert(ANSWERED(0) && ANSWERED(1)); break                       /* nothing waits without a word */
  od
}

init {
  atomic {
    lane[0] = DEFERRED_ASSOCIATION; lane[1] = DEFERRED_ASSOCIATION; lane[2] = CONFIGURED; lane[3] = OTHER;
    st[2] = PROCESSING; st[3] = PROCESSING;
    if :: cycle = true; SAY("@ rows 0 and 1 wait for each other\n", 0, 0) :: cycle = false fi;
    run Parent(); run Worker(0); run Worker(1); run Clock()
  }
}

#ifdef REACH
ltl reach { [] !(REACH) }
#else
ltl safe { [] (!touched[2] && !touched[3]) }
#endif
