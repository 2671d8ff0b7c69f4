/* What the native peers share: the command line, clocks, and how many operations fit into a
 * measurement. It does what src/clock.rs does, so that the lines they print can be compared.
 *
 *     asio serve 4096            prints "port N", serves until its standard input ends
 *     asio pairs tcp-50 200      prints "measured cpu=… ns=…"
 *     asio version               prints what it was built from
 */
#ifndef MEASURE_H
#define MEASURE_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE = 64, BUFFER = 1024 };

static void die(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static inline uint64_t nanos(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct took {
    uint64_t wall, cpu;
};

typedef void (*run_function)(uint64_t count);

static inline struct took timed(run_function run, uint64_t count) {
    uint64_t cpu = nanos(CLOCK_PROCESS_CPUTIME_ID), wall = nanos(CLOCK_MONOTONIC);
    run(count);
    struct took took = {nanos(CLOCK_MONOTONIC) - wall, nanos(CLOCK_PROCESS_CPUTIME_ID) - cpu};
    return took;
}

static inline uint64_t next_multiple(uint64_t number, uint64_t step) {
    if (number == 0) number = 1;
    return (number + step - 1) / step * step;
}

/* Runs in growing numbers until it is known how many fit, then those. */
static inline void measure(run_function run, uint64_t step, double limit) {
    uint64_t count = step;
    for (;;) {
        uint64_t wall = timed(run, count).wall;
        if (wall == 0) wall = 1;
        double fits = (double)count * limit / (double)wall;
        if ((double)wall * 4 >= limit) {
            count = next_multiple((uint64_t)fits, step);
            break;
        }
        uint64_t half = (uint64_t)(fits / 2);
        count = next_multiple(count * 8 < half ? count * 8 : half, step);
    }
    struct took took = timed(run, count);
    printf("measured cpu=%.3f ns=%.3f\n", (double)took.cpu / (double)count,
           (double)took.wall / (double)count);
}

static void *end_with_input(void *unused) {
    char byte;
    (void)unused;
    if (read(0, &byte, 1) < 0) perror("standard input");
    _exit(0);
}

static inline void announce(unsigned port) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, end_with_input, NULL) != 0) die("no thread");
    printf("port %u\n", port);
    fflush(stdout);
}

static inline size_t number(const char *text) {
    long value = atol(text);
    if (value <= 0) die("a number above zero is wanted");
    return (size_t)value;
}

/* What the program has to provide. */
static const char *version(void);
static void serve(size_t buffer);
static void prepare(int is_unix, size_t pairs);
static void run(uint64_t count);

int main(int count, char **words) {
    if (count == 3 && strcmp(words[1], "serve") == 0) {
        serve(number(words[2]));
        return 0;
    }
    if (count == 2 && strcmp(words[1], "version") == 0) {
        printf("%s, compiler %s\n", version(), __VERSION__);
        return 0;
    }
    const char *dash = count == 4 ? strrchr(words[2], '-') : NULL;
    if (dash == NULL || strcmp(words[1], "pairs") != 0) die("serve BUFFER | pairs tcp-50 MILLIS");
    size_t pairs = number(dash + 1);
    prepare(strncmp(words[2], "unix-", 5) == 0, pairs);
    measure(run, pairs, (double)number(words[3]) * 1e6);
    return 0;
}

#endif
