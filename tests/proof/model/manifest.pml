/*
 * Two mapping manifests over two links, each sent twice by an operator who did not hear the first answer; beside them a
 * profile's revalidation of one link, and a save that reserves on the other.
 *
 * The first manifest takes both links from mapping 1 to 2, the second from 2 to 3. A receipt per link and operation
 * says what was done; the link points to its newest receipt.
 *
 *   ORDER      slots are locked in link-key order                                          (D-10)
 *   ATOMIC     all links of a manifest change in one transaction, with their receipts      (RV-08)
 *   TUPLE      a repeat compares the mapping, not everything else of the row               (D-32)
 *   CHAIN      a repeat follows receipts that later operations built on its own            (D-32)
 *   UNDERLOCK  the gate for attempts is read under the locks that the change is made under (D-10, RV-04)
 */
mtype = { NOTHING, APPLIED, ALREADY_APPLIED, REFUSED };
byte lock[2]; byte mapping[2]; byte profile[2]; byte pointer[2]; bool occupied[2];
bool receipt_1[2]; bool receipt_2[2];
mtype verdict[3] = NOTHING; bool was_applied[3]; bool disowned = false; byte ended = 0;

#ifdef TRACE
#define SAY(text, a, b) printf(text, a, b)
#else
#define SAY(text, a, b) skip
#endif

#define HAS_RECEIPTS(op) ((op) == 1 -> (receipt_1[0] && receipt_1[1]) : (receipt_2[0] && receipt_2[1]))
#ifdef NO_TUPLE
#define SAME_ROW(l) (profile[l] == 1)
#else
#define SAME_ROW(l) (true)
#endif
#define CURRENT(l, op) (mapping[l] == (op) + 1 && pointer[l] == (op) && SAME_ROW(l))
#ifdef NO_CHAIN
#define STANDS(l, op) CURRENT(l, op)
#else
#define STANDS(l, op) (CURRENT(l, op) || ((op) == 1 && receipt_2[l] && pointer[l] == 2 && SAME_ROW(l)))
#endif

inline write(op, l) {
  mapping[l] = op + 1; pointer[l] = op;
  if :: op == 1 -> receipt_1[l] = true :: op == 2 -> receipt_2[l] = true fi
}

proctype Manifest(byte op; byte first) {
  byte second = 1 - first; byte tries = 0; bool stopped;
again:
  tries++;
#ifdef NO_UNDERLOCK
  atomic { stopped = occupied[0] || occupied[1] }
#endif
  atomic { lock[first] == 0 -> lock[first] = op }
  atomic { lock[second] == 0 -> lock[second] = op }
  atomic {
#ifndef NO_UNDERLOCK
    stopped = occupied[0] || occupied[1];
#endif
    if
    :: HAS_RECEIPTS(op) && STANDS(0, op) && STANDS(1, op) -> verdict[op] = ALREADY_APPLIED; SAY("@ operation %d: was applied already\n", op, 0); lock[first] = 0; lock[second] = 0
    :: HAS_RECEIPTS(op) && !(STANDS(0, op) && STANDS(1, op)) -> disowned = true; SAY("@ operation %d: denies what it did\n", op, 0); lock[first] = 0; lock[second] = 0
    :: !HAS_RECEIPTS(op) && (stopped || mapping[0] != op || mapping[1] != op || profile[0] != 1 || profile[1] != 1) ->
         verdict[op] = REFUSED; SAY("@ operation %d: refused\n", op, 0); lock[first] = 0; lock[second] = 0
    :: !HAS_RECEIPTS(op) && !stopped && mapping[0] == op && mapping[1] == op && profile[0] == 1 && profile[1] == 1 ->
         assert(!occupied[0] && !occupied[1]);
         write(op, first);
#ifndef NO_ATOMIC
         write(op, second); lock[second] = 0; lock[first] = 0; was_applied[op] = true; verdict[op] = APPLIED; SAY("@ operation %d: applied\n", op, 0)
#else
         SAY("@ operation %d: the first link, committed alone\n", op, 0)
#endif
    fi
  }
#ifdef NO_ATOMIC
  if
  :: atomic { lock[second] == op && mapping[first] == op + 1 -> write(op, second); lock[second] = 0; lock[first] = 0; was_applied[op] = true }
  :: atomic { lock[second] == op -> SAY("@ operation %d: killed between two links\n", op, 0); lock[second] = 0; lock[first] = 0; goto end }
  :: atomic { lock[second] != op -> skip }
  fi;
#endif
  if
  :: tries < 2 -> goto again                                                    /* the answer was lost; ask again */
  :: true -> skip
  fi;
end:
  ended++
}

proctype Revalidate() { atomic { lock[0] == 0 -> profile[0] = 2; SAY("@ the profile of link 0 is revalidated\n", 0, 0) } }

proctype Save() {
  atomic { lock[1] == 0 -> occupied[1] = true; SAY("@ a save occupies slot 1\n", 0, 0) }
  atomic { occupied[1] = false }
}

active proctype Judge() {
  do
  :: timeout ->
       assert(ended == 2);                                                      /* no deadlock */
       assert(receipt_1[0] == receipt_1[1] && receipt_2[0] == receipt_2[1]);    /* all or nothing */
       assert(!disowned);
       break
  od
}

init {
  atomic {
    mapping[0] = 1; mapping[1] = 1; profile[0] = 1; profile[1] = 1;
    run Manifest(1, 0);
#ifdef NO_ORDER
    run Manifest(2, 1);
#else
    run Manifest(2, 0);
#endif
    run Revalidate(); run Save()
  }
}

#ifdef REACH
ltl reach { [] !(REACH) }
#else
ltl safe { [] (!(was_applied[2]) || was_applied[1]) }
#endif
