/*
 * Records every change that a process makes below one folder, in the order in which they happened.
 *
 * Loaded with LD_PRELOAD into a process of its own. POWER_ROOT is the folder, POWER_LOG the file to which the
 * records go. One lock is held around each call and its record, so the log is a true order, whatever the threads.
 * A write through a mapping is not seen: SQLite writes its -shm file so, which it rebuilds by itself.
 *
 * POWER_FAIL ("<s or w> <end of a path> <first> <count> <errno>") makes syncs or writes of matching files fail, from
 * the first on. A failed write is recorded as "x", a failed sync as "f": the kernel takes the pages for clean then, whatever
 * the disk has.
 *
 * A record: kind (1 byte), three numbers of 8 bytes (the descriptor, the position, the size of the data), then the
 * data: the bytes of a write, or a path below the root, or two of them with a zero between.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_DESCRIPTORS 65536
#define REAL(name) ((__typeof__(&name))real(#name))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char tracked[MOST_DESCRIPTORS];
static int log_descriptor = -1;
static const char *root;
static size_t root_length;
static char fail_kind;
static char fail_suffix[64];
static int fail_first, fail_count, fail_error, seen;

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void start(void) {
    root = getenv("POWER_ROOT");
    const char *path = getenv("POWER_LOG");
    if (!root || !path) return;
    root_length = strlen(root);
    int (*open_it)(const char *, int, ...) = real("open64");
    log_descriptor = open_it(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_descriptor < 0) abort();
    const char *fail = getenv("POWER_FAIL");
    if (fail && sscanf(fail, "%c %63s %d %d %d", &fail_kind, fail_suffix, &fail_first, &fail_count, &fail_error) != 5)
        abort();
}

static void put(const void *data, size_t size) {
    ssize_t (*write_it)(int, const void *, size_t) = real("write");
    for (const char *next = data; size;) {
        ssize_t done = write_it(log_descriptor, next, size);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) abort();
        next += done;
        size -= done;
    }
}

static void head(char kind, int64_t descriptor, int64_t position, int64_t size) {
    char record[25];
    record[0] = kind;
    memcpy(record + 1, &descriptor, 8);
    memcpy(record + 9, &position, 8);
    memcpy(record + 17, &size, 8);
    put(record, sizeof record);
}

/* The part below the root, or NULL. A path through an open folder is not recorded, and not used here. */
static const char *below(const char *path) {
    if (log_descriptor < 0 || strncmp(path, root, root_length)) return NULL;
    path += root_length;
    if (*path == 0) return ".";
    return *path == '/' ? path + 1 : NULL;
}

static int is_tracked(int descriptor) {
    return descriptor >= 0 && descriptor < MOST_DESCRIPTORS && tracked[descriptor];
}

/* Whether the call has to fail, under the lock. */
static int fails(char kind, int descriptor) {
    if (kind != fail_kind || tracked[descriptor] != 2) return 0;
    seen++;
    return seen >= fail_first && seen < fail_first + fail_count;
}

static void note_path(char kind, int64_t descriptor, const char *path) {
    head(kind, descriptor, 0, strlen(path));
    put(path, strlen(path));
}

static void note_paths(char kind, const char *from, const char *to) {
    head(kind, 0, 0, strlen(from) + 1 + strlen(to));
    put(from, strlen(from) + 1);
    put(to, strlen(to));
}

#define LOCKED(type, call, note)             \
    pthread_mutex_lock(&lock);               \
    type result = call;                      \
    int error = errno;                       \
    if (result >= 0) { note; }               \
    pthread_mutex_unlock(&lock);             \
    errno = error;                           \
    return result;

static void note_open(int descriptor, const char *path, int flags) {
    if (descriptor >= MOST_DESCRIPTORS) abort();
    const char *name = below(path);
    tracked[descriptor] = name != NULL;
    if (!name) return;
    size_t length = strlen(name), suffix = strlen(fail_suffix);
    if (suffix && length >= suffix && !strcmp(name + length - suffix, fail_suffix)) tracked[descriptor] = 2;
    note_path('o', descriptor, name);
    if (flags & O_TRUNC) head('t', descriptor, 0, 0);
}

#define OPEN(name)                                                            \
    int name(const char *path, int flags, ...) {                              \
        va_list more;                                                         \
        va_start(more, flags);                                                \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more);                                                         \
        LOCKED(int, REAL(name)(path, flags, mode), note_open(result, path, flags)) \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                          \
    int name(int folder, const char *path, int flags, ...) {                  \
        va_list more;                                                         \
        va_start(more, flags);                                                \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more);                                                         \
        LOCKED(int, REAL(name)(folder, path, flags, mode), note_open(result, path, flags)) \
    }
OPENAT(openat)
OPENAT(openat64)

int close(int descriptor) {
    if (descriptor >= 0 && descriptor < MOST_DESCRIPTORS) tracked[descriptor] = 0;
    return REAL(close)(descriptor);
}

/* The descriptor's own position, before a write that uses it. */
static off_t position_of(int descriptor) {
    int (*control)(int, int, ...) = real("fcntl64");
    if (control(descriptor, F_GETFL) & O_APPEND) {
        struct stat found;
        return fstat(descriptor, &found) ? -1 : found.st_size;
    }
    return lseek(descriptor, 0, SEEK_CUR);
}

static void note_write(int descriptor, off_t at, const struct iovec *parts, int count, ssize_t size) {
    head('w', descriptor, at, size);
    for (int part = 0; part < count && size > 0; part++) {
        size_t taken = parts[part].iov_len < (size_t)size ? parts[part].iov_len : (size_t)size;
        put(parts[part].iov_base, taken);
        size -= taken;
    }
}

#define WRITE(at, call, parts, count)                                \
    if (!is_tracked(descriptor)) return call;                        \
    pthread_mutex_lock(&lock);                                       \
    off_t start = at;                                                \
    int failing = fails('w', descriptor);                            \
    ssize_t result = failing ? -1 : call;                            \
    int error = failing ? fail_error : errno;                        \
    if (failing) head('x', descriptor, start, 0);                    \
    if (result > 0) note_write(descriptor, start, parts, count, result); \
    pthread_mutex_unlock(&lock);                                     \
    errno = error;                                                   \
    return result;

ssize_t write(int descriptor, const void *data, size_t size) {
    struct iovec one = {(void *)data, size};
    WRITE(position_of(descriptor), REAL(write)(descriptor, data, size), &one, 1)
}
ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    WRITE(position_of(descriptor), REAL(writev)(descriptor, parts, count), parts, count)
}

#define PWRITE(name)                                                              \
    ssize_t name(int descriptor, const void *data, size_t size, off_t at) {       \
        struct iovec one = {(void *)data, size};                                  \
        WRITE(at, REAL(name)(descriptor, data, size, at), &one, 1)                \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(name)                                                             \
    ssize_t name(int descriptor, const struct iovec *parts, int count, off_t at) { \
        WRITE(at, REAL(name)(descriptor, parts, count, at), parts, count)         \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

#define PWRITEV2(name)                                                                        \
    ssize_t name(int descriptor, const struct iovec *parts, int count, off_t at, int flags) { \
        WRITE(at, REAL(name)(descriptor, parts, count, at, flags), parts, count)              \
    }
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

#define TRUNCATE(name)                                                            \
    int name(int descriptor, off_t size) {                                        \
        if (!is_tracked(descriptor)) return REAL(name)(descriptor, size);         \
        LOCKED(int, REAL(name)(descriptor, size), head('t', descriptor, size, 0)) \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define ALLOCATE(name)                                                                       \
    int name(int descriptor, int mode, off_t start, off_t size) {                            \
        if (!is_tracked(descriptor)) return REAL(name)(descriptor, mode, start, size);       \
        LOCKED(int, REAL(name)(descriptor, mode, start, size),                               \
               if (!mode) head('a', descriptor, start + size, 0))                            \
    }
ALLOCATE(fallocate)
ALLOCATE(fallocate64)

#define SYNC(name)                                                                \
    int name(int descriptor) {                                                    \
        if (!is_tracked(descriptor)) return REAL(name)(descriptor);               \
        pthread_mutex_lock(&lock);                                                \
        int failing = fails('s', descriptor);                                     \
        int result = failing ? -1 : REAL(name)(descriptor);                       \
        int error = failing ? fail_error : errno;                                 \
        head(result < 0 ? 'f' : 's', descriptor, 0, 0);                           \
        pthread_mutex_unlock(&lock);                                              \
        errno = error;                                                            \
        return result;                                                            \
    }
SYNC(fsync)
SYNC(fdatasync)

#define ONE_PATH(name, kind, parameters, arguments)                               \
    int name parameters {                                                         \
        if (!below(path)) return REAL(name) arguments;                            \
        LOCKED(int, REAL(name) arguments, note_path(kind, 0, below(path)))        \
    }
ONE_PATH(mkdir, 'm', (const char *path, mode_t mode), (path, mode))
ONE_PATH(mkdirat, 'm', (int folder, const char *path, mode_t mode), (folder, path, mode))
ONE_PATH(rmdir, 'u', (const char *path), (path))
ONE_PATH(unlink, 'u', (const char *path), (path))
ONE_PATH(unlinkat, 'u', (int folder, const char *path, int flags), (folder, path, flags))

#define TWO_PATHS(name, kind, parameters, arguments)                              \
    int name parameters {                                                         \
        if (!below(from) || !below(to)) return REAL(name) arguments;              \
        LOCKED(int, REAL(name) arguments, note_paths(kind, below(from), below(to))) \
    }
TWO_PATHS(link, 'l', (const char *from, const char *to), (from, to))
TWO_PATHS(linkat, 'l', (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
TWO_PATHS(rename, 'r', (const char *from, const char *to), (from, to))
TWO_PATHS(renameat, 'r', (int a, const char *from, int b, const char *to), (a, from, b, to))
