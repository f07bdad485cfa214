/* The protocol of terms (docs/protocol.md#terms) as a model for spin: a coordinator, two servers, two workers.
 *
 * As in the product, server 0 runs in the coordinator's process. The job trains two steps in `sync`, with a checkpoint
 * after each. Every process may crash and start again between any two of its actions, and server 1 may count as lost
 * while it lives (it was paused): FAULTS times in all. An action is the arrival of one message, or one decision. A
 * message that its sender repeats until it is answered needs no state: it can arrive, or be lost, as long as its
 * sender is alive. A message sent before the sender crashed, or heard of a new term, may stay in flight: one such
 * message at a time (`late`), received any number of times, at any later moment, or never.
 *
 * Properties checked in every reachable state:
 *   exactly once   a server never applies a micro-batch to weights that contain it, and a checkpoint lacks none
 *   agreement      the slices of a checkpoint contain the same pushes, each from one computation
 *   one cut        a worker computes on weights of one term
 *   no false refusal   a member that was not lost is not refused
 *   progress       if no process can move, the last checkpoint is written (no invalid end state); and no action repeats
 *                  for ever (`pan -l` finds no cycle): so every run ends well once crashes end
 *
 * Not modelled: losses of workers under `continue`, asynchronous strategies, evaluations, spares, and two processes
 * that both want to be server 1 (late messages of the older one are modelled).
 *
 * `-D NAME` removes one guard; the names are those in `#ifdef` and `#ifndef`. terms_test.py expects spin to find an
 * error for each. */

#ifndef FAULTS
#define FAULTS 2 /* crashes and false suspicions in all: 0, 1, ... or this many */
#endif

#define STEPS 2
#define WORKERS 2
#define MOST_TERMS 7 /* three bits each */

/* Members: server 0, which is the coordinator's process, server 1, workers 2 and 3. */
#define IS_SERVER(m) ((m) < 2)

/* ---- the coordinator's process; `term_file` and `disk` outlive it ---- */
mtype:phase = {DOWN, GATHERING, TRAINING, DONE}
mtype:phase phase = GATHERING;
unsigned term : 3 = 1;
unsigned term_file : 3 = 1; /* OUT/term.json */
/* The coordinator's view of each member: unknown, present, or dead (not yet noticed). */
#define NOBODY 0
#define HERE 1
#define GONE 2
typedef Known { unsigned is : 2; bit declared }
Known known[4];

/* Weights are modelled by their pushes: for each step and worker, the term in which the push was computed, 0 = none. */
#define FIELD(step, worker) (3 * ((step) * WORKERS + (worker)))
#define HAS(weights, step, worker) (((weights) >> FIELD(step, worker)) & 7)
#define CUT(weights, step) ((weights) & ((1 << FIELD(step, 0)) - 1))
#define WHOLE(weights, step) \
  ((step) < 1 || HAS(weights, 0, 0) && HAS(weights, 0, 1) && ((step) < 2 || HAS(weights, 1, 0) && HAS(weights, 1, 1)))
typedef Weights { unsigned step : 2; unsigned holds : 12 }
Weights disk;           /* the newest whole checkpoint */
Weights begin;          /* the weights that this term began with */
Weights fetched[2];     /* slices of the next checkpoint; step 0: not fetched yet */
Weights written;        /* being written by the writer thread; step 0: it is idle */
unsigned gathered : 2;  /* step of this term's newest checkpoint that the writer thread received */

/* ---- members ---- */
mtype:joined = {FRESH, HELLO, MEMBER}
/* FRESH: knows no job. HELLO: knows its term, and sends Hello. */
typedef Member { mtype:joined is; unsigned term : 3 }
Member member[4];

typedef Server {
  bit serves;        /* has weights */
  Weights weights;   /* their step and pushes */
}
Server server[2];
/* The current step's pushes are applied on arrival (see HAS). The step is complete with both. */

#define UNKNOWN 3
typedef Worker {
  unsigned step : 2;   /* to compute next; UNKNOWN: it starts, and asks the servers for their step */
  bit computed;
  unsigned made : 3;   /* term in which it was computed */
}
Worker worker[2];

/* ---- the network ---- */
mtype:kind = {NOTHING, PUSH, TAKEN, WEIGHTS, FETCHED, TEXT, SAID_HELLO}
typedef Late {
  mtype:kind is;
  unsigned term : 3;
  unsigned from : 2;
  unsigned to : 2;
  Weights weights; /* a push: its step */
}
Late late = NOTHING;
unsigned faults : 3;

/* This message may stay in flight. */
inline keep(a_kind, a_term, a_from, a_to, a_step, a_content) {
  if
#ifndef NOTHING_LATE
  :: late.is == NOTHING ->
    late.is = a_kind; late.term = a_term; late.from = a_from; late.to = a_to;
    late.weights.step = a_step; late.weights.holds = a_content
#endif
  :: true
  fi
}

inline forget_late() {
  late.is = NOTHING; late.term = 0; late.from = 0; late.to = 0; late.weights.step = 0; late.weights.holds = 0
}

/* ---- state that members drop, and messages that they leave in flight ---- */

inline drop_weights(s) {
  if
  :: server[s].serves ->
    if
    :: keep(WEIGHTS, member[s].term, s, 2, server[s].weights.step, 0)
    :: keep(WEIGHTS, member[s].term, s, 3, server[s].weights.step, 0)
    :: HAS(server[s].weights.holds, 0, 0) -> keep(TAKEN, member[s].term, s, 2, 0, 0)
    :: HAS(server[s].weights.holds, 1, 0) -> keep(TAKEN, member[s].term, s, 2, 1, 0)
    :: HAS(server[s].weights.holds, 0, 1) -> keep(TAKEN, member[s].term, s, 3, 0, 0)
    :: HAS(server[s].weights.holds, 1, 1) -> keep(TAKEN, member[s].term, s, 3, 1, 0)
    :: server[s].weights.step > 0 ->
      keep(FETCHED, member[s].term, s, 0, server[s].weights.step, CUT(server[s].weights.holds, server[s].weights.step))
    fi
  :: else
  fi;
  server[s].serves = 0; server[s].weights.step = 0; server[s].weights.holds = 0
}

inline drop_computation(w) {
  if
  :: worker[w].computed ->
    if
    :: keep(PUSH, member[w + 2].term, w, 0, worker[w].step, worker[w].made)
    :: keep(PUSH, member[w + 2].term, w, 1, worker[w].step, worker[w].made)
    fi
  :: else
  fi;
  worker[w].step = UNKNOWN; worker[w].computed = 0; worker[w].made = 0
}

/* A newer term: the member drops the state of the old term and joins again (Member::take_term). */
inline take_term(m, a_term) {
  if
  :: IS_SERVER(m) ->
#ifndef SERVER_KEEPS_WEIGHTS
    drop_weights(m)
#else
    skip
#endif
  :: else ->
#ifdef WORKER_KEEPS_PUSH
    if
    :: worker[m - 2].computed -> skip
    :: else -> drop_computation(m - 2)
    fi
#else
    drop_computation(m - 2)
#endif
  fi;
  member[m].term = a_term;
  member[m].is = HELLO
}

#define FORGET(m) known[m].is = NOBODY; known[m].declared = 0

/* ---- a member and the coordinator ---- */
proctype member_of_job(byte m) {
  do
  :: phase == DONE -> break

  /* Hello arrives. A server that arrives during a term waits: it may replace a server that died unnoticed. */
  :: atomic {
    member[m].is != MEMBER && known[m].is == NOBODY &&
    (phase == GATHERING || phase == TRAINING && !IS_SERVER(m)) &&
    (member[m].is == HELLO || !IS_SERVER(m)) -> /* a server asks for the job first */
    known[m].is = HERE
  }
#ifdef TAKES_REPLACEMENT
  :: atomic {
    member[m].is == HELLO && IS_SERVER(m) && phase == TRAINING && known[m].is == GONE -> known[m].is = HERE
  }
#endif

  /* The first JobText, in answer to a Hello. */
  :: atomic {
    member[m].is == FRESH && (phase == GATHERING || phase == TRAINING) && (IS_SERVER(m) || known[m].is == HERE) ->
    member[m].term = term;
    member[m].is = (IS_SERVER(m) -> HELLO : MEMBER)
  }

  /* Heartbeats and Hellos of an earlier term are answered with the text of this term. */
#ifndef OLD_HEARTBEATS_UNANSWERED
  :: atomic {
    member[m].is != FRESH && member[m].term < term && (phase == GATHERING || phase == TRAINING) -> take_term(m, term)
  }
#endif

  /* A member receives the state: it has joined. */
  :: atomic {
    member[m].is == HELLO && member[m].term == term && (phase == GATHERING || phase == TRAINING) &&
#ifdef JOINS_ON_TEXT
    (known[m].is == HERE || !IS_SERVER(m)) -> /* the text arrived twice */
#else
    known[m].is == HERE ->
#endif
    member[m].is = MEMBER
  }

  /* The heartbeat of an unknown member is refused, and the process ends. */
  :: atomic {
    member[m].is == MEMBER && member[m].term == term && (phase == GATHERING || phase == TRAINING) && known[m].is == NOBODY ->
    assert(false) /* no false refusal */
  }

  /* A worker declares. */
  :: atomic {
    !IS_SERVER(m) && member[m].is == MEMBER && member[m].term == term && known[m].is == HERE &&
    (phase == GATHERING || phase == TRAINING) && !known[m].declared ->
    known[m].declared = 1
  }

  /* A text that was in flight. A fresh process takes any text, others only that of a newer term. */
  :: atomic {
    late.is == TEXT && late.to == m &&
#ifdef OLD_TEXTS_TAKEN
    member[m].is != FRESH && late.term != member[m].term ->
#else
    member[m].is != FRESH && late.term > member[m].term ->
#endif
    take_term(m, late.term)
  }
  :: atomic {
    late.is == TEXT && late.to == m && member[m].is == FRESH && late.term < term ->
    member[m].term = late.term;
    member[m].is = (IS_SERVER(m) -> HELLO : MEMBER)
  }

  /* The coordinator notices a death. */
  :: atomic { (phase == GATHERING || phase == TRAINING && !IS_SERVER(m)) && known[m].is == GONE -> FORGET(m) }

  /* A crash. */
  :: atomic {
    faults > 0 && member[m].is != FRESH ->
    faults--;
    if
    :: keep(SAID_HELLO, 0, m, 0, 0, 0)
    :: IS_SERVER(m) -> skip
    :: !IS_SERVER(m) -> skip
    fi;
    if
    :: IS_SERVER(m) -> drop_weights(m)
    :: else -> drop_computation(m - 2)
    fi;
    member[m].is = FRESH; member[m].term = 0;
    known[m].declared = 0;
    if
    :: known[m].is == HERE -> known[m].is = GONE
    :: else
    fi
  }
  od
}

/* ---- a server's data ---- */
inline apply_push(s, w, source) {
  assert(HAS(server[s].weights.holds, server[s].weights.step, w) == 0); /* exactly once */
  server[s].weights.holds = server[s].weights.holds | (source << FIELD(server[s].weights.step, w));
  if
  :: WHOLE(server[s].weights.holds, server[s].weights.step + 1) -> server[s].weights.step++
  :: else
  fi
}

proctype serving(byte s) {
  do
  :: phase == DONE -> break

  /* State (TRAINING), and Load where there is a checkpoint. */
  :: atomic {
    s != 0 && member[s].is == MEMBER && member[s].term == term && phase == TRAINING && known[s].is == HERE && !server[s].serves ->
    server[s].serves = 1; server[s].weights.step = begin.step; server[s].weights.holds = begin.holds
  }
  /* A push that was in flight. */
  :: atomic {
    late.is == PUSH && late.to == s && server[s].serves &&
#ifndef OLD_PUSHES_COUNT
    late.term == member[s].term &&
#endif
#ifndef COUNTS_TWICE
    HAS(server[s].weights.holds, late.weights.step, late.from) == 0 &&
#endif
    late.weights.step == server[s].weights.step ->
    apply_push(s, late.from, late.weights.holds)
  }

  /* The coordinator fetches a slice of the next checkpoint. */
  :: atomic {
    phase == TRAINING && written.step == 0 && gathered < STEPS && fetched[s].step == 0 &&
    server[s].serves && member[s].term == term && server[s].weights.step > gathered ->
    fetched[s].step = gathered + 1;
    fetched[s].holds = CUT(server[s].weights.holds, gathered + 1)
  }
  od
}

/* ---- a worker's computation ---- */
#define SAME_RUN(w, s) (member[w + 2].is == MEMBER && server[s].serves && member[s].term == member[w + 2].term)

/* The weights of the worker's step: a server keeps them until the step after the next. */
#ifdef OLDER_WEIGHTS_DROPPED
#define CAN_PULL(w, s) (SAME_RUN(w, s) && server[s].weights.step == worker[w].step)
#else
#define CAN_PULL(w, s) \
  (SAME_RUN(w, s) && (server[s].weights.step == worker[w].step || server[s].weights.step == worker[w].step + 1))
#endif
/* ... or they were in flight. */
#ifdef OLD_WEIGHTS_TAKEN
#define RIGHT_RUN(w) true
#else
#define RIGHT_RUN(w) (late.term == member[w + 2].term)
#endif
#define COMES_LATE(w, s) \
  (late.is == WEIGHTS && late.from == s && late.to == w + 2 && late.weights.step == worker[w].step && RIGHT_RUN(w))

/* The push has been acknowledged, or a server acknowledged it before a pause and the answer arrives now. */
#ifdef OLD_SERVERS_ACKNOWLEDGE
#define RIGHT_ANSWER(w) true
#else
#define RIGHT_ANSWER(w) (late.term == member[w + 2].term)
#endif
#define ACKNOWLEDGES(w, s) \
  (SAME_RUN(w, s) && HAS(server[s].weights.holds, worker[w].step, w) != 0 || \
   late.is == TAKEN && late.from == s && late.to == w + 2 && late.weights.step == worker[w].step && RIGHT_ANSWER(w))

inline compute(w, from0, from1) {
  assert(from0 == from1); /* one cut */
  worker[w].computed = 1;
  worker[w].made = from0
}

inline push(w, s) {
  SAME_RUN(w, s) && worker[w].computed &&
#ifndef COUNTS_TWICE
  HAS(server[s].weights.holds, worker[w].step, w) == 0 &&
#endif
  server[s].weights.step == worker[w].step ->
  apply_push(s, w, worker[w].made)
}

proctype computing(byte w) {
  do
  :: phase == DONE -> break

  /* A starting worker computes the step of the server that is behind. */
  :: atomic {
    worker[w].step == UNKNOWN && SAME_RUN(w, 0) && SAME_RUN(w, 1) && known[w + 2].declared ->
    worker[w].step = (server[0].weights.step < server[1].weights.step -> server[0].weights.step : server[1].weights.step)
  }
  :: atomic {
    worker[w].step < STEPS && !worker[w].computed && CAN_PULL(w, 0) && CAN_PULL(w, 1) ->
    compute(w, member[0].term, member[1].term)
  }
  :: atomic {
    worker[w].step < STEPS && !worker[w].computed && COMES_LATE(w, 0) && CAN_PULL(w, 1) ->
    compute(w, late.term, member[1].term)
  }
  :: atomic {
    worker[w].step < STEPS && !worker[w].computed && CAN_PULL(w, 0) && COMES_LATE(w, 1) ->
    compute(w, member[0].term, late.term)
  }

  /* The push arrives. */
  :: atomic { push(w, 0) }
  :: atomic { push(w, 1) }

  /* Both servers have acknowledged it. */
  :: atomic {
    worker[w].computed && ACKNOWLEDGES(w, 0) && ACKNOWLEDGES(w, 1) ->
    worker[w].computed = 0; worker[w].made = 0; worker[w].step++
  }
  od
}

/* ---- the coordinator ---- */


/* The last messages of its term may stay in flight: the weights of the start, or a text. */
inline leave_term() {
  if
  :: keep(TEXT, term, 0, 1, 0, 0)
  :: keep(TEXT, term, 0, 2, 0, 0)
  :: keep(TEXT, term, 0, 3, 0, 0)
  fi;
  drop_weights(0);
  FORGET(1); FORGET(2); FORGET(3);
  fetched[0].step = 0; fetched[0].holds = 0; fetched[1].step = 0; fetched[1].holds = 0;
  begin.step = 0; begin.holds = 0; gathered = 0
}

inline begin_term() {
  assert(term_file < MOST_TERMS);
  term = term_file; member[0].term = term;
  phase = GATHERING;
  if
  :: keep(TEXT, term, 0, 1, 0, 0)
  :: keep(TEXT, term, 0, 2, 0, 0)
  :: keep(TEXT, term, 0, 3, 0, 0)
  fi
}

proctype coordinator() {
  do
  :: phase == DONE -> break

  /* After a restart it continues with the term after the one in the file. */
  :: atomic {
    phase == DOWN ->
#ifndef TERM_USED_TWICE
    term_file++;
#endif
    begin_term()
  }

  /* All members are present, and the disk is not busy. */
  :: atomic {
    phase == GATHERING && written.step == 0 && known[1].is != NOBODY &&
    known[2].declared && known[3].declared ->
    begin.step = disk.step; begin.holds = disk.holds; gathered = disk.step;
    phase = TRAINING;
    server[0].serves = 1; server[0].weights.step = begin.step; server[0].weights.holds = begin.holds;
    if
    :: disk.step == STEPS -> phase = DONE /* the job is done already */
    :: else
    fi
  }

  /* A server is lost: first the file, then the new term. */
  :: atomic {
    phase == TRAINING && known[1].is == GONE && term_file == term -> term_file++
  }
  :: atomic { phase == TRAINING && term_file > term -> leave_term(); begin_term() }

  /* A slice of the next checkpoint that was in flight. */
  :: atomic {
    late.is == FETCHED && phase == TRAINING && written.step == 0 && late.weights.step == gathered + 1 &&
#ifndef OLD_SLICES_TAKEN
    late.term == term &&
#endif
    fetched[late.from].step == 0 ->
    fetched[late.from].step = late.weights.step; fetched[late.from].holds = late.weights.holds
  }
  :: atomic {
#ifdef PART_OF_A_CHECKPOINT
    (fetched[0].step != 0 || fetched[1].step != 0) ->
#else
    fetched[0].step != 0 && fetched[1].step != 0 ->
#endif
    assert(fetched[0].holds == fetched[1].holds);                                            /* agreement */
    assert(WHOLE(fetched[0].holds, gathered + 1) && CUT(fetched[0].holds, gathered + 1) == fetched[0].holds); /* exactly once */
    gathered++;
    written.step = gathered; written.holds = fetched[0].holds;
    fetched[0].step = 0; fetched[0].holds = 0; fetched[1].step = 0; fetched[1].holds = 0
  }
  /* The checkpoint is whole on disk, after the rename. The last one ends the run. */
  :: atomic {
    written.step != 0 && phase != DOWN ->
    disk.step = written.step; disk.holds = written.holds;
    written.step = 0; written.holds = 0;
    if
    :: disk.step == STEPS -> phase = DONE
    :: else
    fi
  }
  /* A Hello of a process that is dead by now. */
  :: atomic {
    late.is == SAID_HELLO && phase == GATHERING && known[late.from].is == NOBODY ->
    known[late.from].is = GONE;
    forget_late()
  }
  od
}

/* ---- crashes, pauses, losses ---- */
proctype world() {
  do
  :: phase == DONE -> break
  /* A server is paused until it counts as lost. It wakes up at any time, in the term that it knows. */
  :: atomic { faults > 0 && phase == TRAINING && known[1].is == HERE -> faults--; known[1].is = GONE }
  /* The coordinator crashes. An unfinished write is not a checkpoint. */
  :: atomic {
    faults > 0 && phase != DOWN && phase != DONE ->
    faults--;
    leave_term();
    written.step = 0; written.holds = 0; term = 0; member[0].term = 0;
    phase = DOWN
  }
  :: atomic { late.is != NOTHING -> forget_late() }
  od
}

init {
  atomic {
    /* the number of faults of this run */
    select(faults : 0 .. FAULTS);
    member[0].is = MEMBER; member[0].term = 1; known[0].is = HERE; member[1].is = FRESH; member[2].is = FRESH; member[3].is = FRESH;
    worker[0].step = UNKNOWN; worker[1].step = UNKNOWN;
    late.is = NOTHING;
    run coordinator();
    run member_of_job(1); run member_of_job(2); run member_of_job(3);
    run serving(0); run serving(1);
    run computing(0); run computing(1);

    run world()
  }
}
