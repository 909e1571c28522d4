// A rival of the suite `client`: the same events through LTTng-UST.
//
// For every line `KIND THREADS WARM EACH` on standard input a session is started, each thread does
// WARM events of that kind and then, timed, EACH. The line in answer has the nanoseconds of a
// thread's EACH events, the mean of the threads, and the bytes that were recorded. Kinds are those
// of the suite: `instant`, `slice`, `disabled` and `empty`.
//
// The session keeps a ring of 32 MiB for each processor in memory, which holds a lap. Its daemon is
// this program's own, in a folder that goes with it: as root the two run as another user, for whom
// the daemon's sockets are in that folder.
#define _GNU_SOURCE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "tracepoints.h"

#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NOBODY = 65534, THREADS_MAX = 64, READY_TRIES = 100, READY_MS = 100, QUIET_MS = 100 };

typedef void (*Events)(uint64_t count);

static void instants(uint64_t count) {
    for (uint64_t i = 0; i < count; i++) lttng_ust_tracepoint(watershed, on_instant);
}

static void slices(uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        lttng_ust_tracepoint(watershed, on_slice_begin, i, "a string of twenty b");
        lttng_ust_tracepoint(watershed, on_slice_end);
    }
}

// Keeps the loops from being left out.
#define USE(value) __asm__ volatile("" : : "r"(value) : "memory")

static void disabled(uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        lttng_ust_tracepoint(watershed, off_instant, i);
        USE(i);
    }
}

static void empty(uint64_t count) {
    for (uint64_t i = 0; i < count; i++) USE(i);
}

static Events events(const char *kind) {
    if (strcmp(kind, "instant") == 0) return instants;
    if (strcmp(kind, "slice") == 0) return slices;
    if (strcmp(kind, "disabled") == 0) return disabled;
    return strcmp(kind, "empty") == 0 ? empty : NULL;
}

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "watershed-rival-lttng: %s: %s\n", what, strerror(errno));
    exit(1);
}

// The race of a lap.
struct Race {
    Events run;
    uint64_t warm, each, threads;
    atomic_uint_fast64_t ready, took_ns;
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void *compete(void *argument) {
    struct Race *race = argument;
    race->run(race->warm);
    atomic_fetch_add_explicit(&race->ready, 1, memory_order_relaxed);
    while (atomic_load_explicit(&race->ready, memory_order_relaxed) < race->threads) sched_yield();
    uint64_t start = now_ns();
    race->run(race->each);
    atomic_fetch_add_explicit(&race->took_ns, now_ns() - start, memory_order_relaxed);
    return NULL;
}

// The mean of the threads' times.
static uint64_t race(struct Race *race) {
    pthread_t threads[THREADS_MAX];
    for (uint64_t i = 0; i < race->threads; i++)
        if (pthread_create(&threads[i], NULL, compete, race) != 0) fail("a thread");
    for (uint64_t i = 0; i < race->threads; i++) pthread_join(threads[i], NULL);
    return race->took_ns / race->threads;
}

// Runs a command of `lttng`, and says whether it was well.
static int lttng(const char *format, ...) {
    char command[512], arguments[384];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    snprintf(command, sizeof command, "lttng --no-sessiond %s >/dev/null 2>&1", arguments);
    return system(command) == 0;
}

static uint64_t bytes_found;

static int add_bytes(const char *path, const struct stat *stat, int type, struct FTW *place) {
    const char *name = path + place->base;
    if (type == FTW_F && strncmp(name, "events_", 7) == 0) bytes_found += (uint64_t)stat->st_size;
    return 0;
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *place) {
    (void)stat, (void)type, (void)place;
    remove(path);
    return 0;
}

static void remove_all(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static void lap(const char *home, struct Race *this_race) {
    char output[256];
    snprintf(output, sizeof output, "%s/trace", home);
    int starts = lttng("create lap --snapshot --output='%s'", output) &&
                 lttng("enable-channel -u events --overwrite --subbuf-size=4M --num-subbuf=8") &&
                 lttng("enable-event -u -c events 'watershed:on_*'") && lttng("start");
    if (!starts) fail("a session");
    uint64_t took_ns = race(this_race);
    if (!lttng("stop") || !lttng("snapshot record")) fail("a snapshot");
    bytes_found = 0;
    nftw(output, add_bytes, 16, FTW_PHYS);
    if (!lttng("destroy lap")) fail("the end of a session");
    remove_all(output);
    // The daemons free a session's memory behind its end, which would cost the next contestant.
    usleep(QUIET_MS * 1000);
    printf("%llu %llu\n", (unsigned long long)took_ns, (unsigned long long)bytes_found);
    fflush(stdout);
}

// Does the laps that are asked for.
static int work(const char *home) {
    char kind[16];
    unsigned long long threads, warm, each;
    while (scanf("%15s %llu %llu %llu", kind, &threads, &warm, &each) == 4) {
        struct Race this_race = {events(kind), warm, each, threads, 0, 0};
        if (this_race.run == NULL || threads == 0 || threads > THREADS_MAX) fail("a line");
        lap(home, &this_race);
    }
    return 0;
}

// Starts a program that ends with this one.
static pid_t start(char *const arguments[]) {
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() == parent) execvp(arguments[0], arguments);
        _exit(127);
    }
    return child;
}

static int is_running(pid_t child) { return child > 0 && waitpid(child, NULL, WNOHANG) == 0; }

static int wait_until_ready(pid_t daemon) {
    for (int i = 0; i < READY_TRIES && is_running(daemon); i++) {
        if (lttng("list")) return 1;
        usleep(READY_MS * 1000);
    }
    return 0;
}

// The daemon, and this program again: the library looks at its environment before `main`.
int main(void) {
    const char *of_worker = getenv("WATERSHED_RIVAL_LTTNG");
    if (of_worker != NULL) return work(of_worker);
    char home[] = "/tmp/watershed-lttng-XXXXXX";
    if (mkdtemp(home) == NULL) fail("a folder");
    if (geteuid() == 0) {
        int is_nobody =
            chown(home, NOBODY, NOBODY) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0;
        if (!is_nobody) fail("a user");
    }
    setenv("LTTNG_HOME", home, 1);
    setenv("LTTNG_UST_REGISTER_TIMEOUT", "-1", 1);
    char *daemon_arguments[] = {"lttng-sessiond", "--no-kernel", "--quiet", NULL};
    pid_t daemon = start(daemon_arguments);
    int status = 1;
    if (wait_until_ready(daemon)) {
        setenv("WATERSHED_RIVAL_LTTNG", home, 1);
        char *worker_arguments[] = {"/proc/self/exe", NULL};
        pid_t worker = start(worker_arguments);
        if (worker > 0) waitpid(worker, &status, 0);
    }
    if (is_running(daemon)) {
        kill(daemon, SIGTERM);
        waitpid(daemon, NULL, 0);
    }
    remove_all(home);
    return status == 0 ? 0 : 1;
}
