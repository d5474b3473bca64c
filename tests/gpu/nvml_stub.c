/* A stand-in for NVIDIA's driver library, for tests and demonstrations: it answers from the text file named by
   NVML_STUB, which it reads anew whenever that changes. A line is `key = value`; the last one of a key counts. What the
   file does not hold, the card does not have (NOT_SUPPORTED).

   driver.version, driver.count        the version, and how many GPUs there are
   driver.init = 9                     what nvmlInit returns (9: not loaded, 18: versions differ)
   driver.gone = 1                     every call returns UNINITIALIZED, as after the driver was unloaded
   driver.hang = 1                     every call waits until this goes away
   fail.<function> = 13                what a function returns; slow.<function> = 200: it takes so many milliseconds
   gpu.<key> = ..., gpu3.<key> = ...   of all GPUs; of one, which goes before
   gpu1.lost = 1                       every call for it returns GPU_IS_LOST
   gpu0.uuid, .name, .bus_id, .utilization, .memory_utilization, .memory_total, .memory_used, .memory_reserved,
     .temperature, .temperature_margin, .threshold.<n>, .power, .power_limit, .power_limit_default (milliwatts),
     .energy, .sm_clock, .sm_clock_max, .memory_clock, .memory_clock_max, .pstate, .reasons, .pcie_gen, .pcie_gen_max,
     .pcie_width, .pcie_width_max, .pcie_tx, .pcie_rx, .ecc_errors, .ecc_corrected, .remapped_rows, .xid
   gpu0.field.269 = ull:12345          a reading by number: uint: (the default), ull:, double:, sint:, error:<code>
   gpu0.gpm.5 = 43.5                   a metric of its counters, in percent or MiB/s
   gpu0.processes = 1234:5368709120 99:unknown      pids and bytes; process.1234 = /usr/bin/python
   gpu0.mig = 2                        split into so many instances: gpu0.mig1.uuid, .name, .memory_total, ...  */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <pthread.h>
#include <unistd.h>

enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10, GPU_IS_LOST = 15
};
enum { GPUS = 16, INSTANCES = 8, ROWS = 2048 };

typedef unsigned long long u64;
typedef struct { int gpu, instance; } Device; /* instance -1: the whole GPU */

static struct { char key[64], value[160]; } rows[ROWS];
static int count;
static char text[1 << 17];
static struct stat known;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* the thread that waits for events reads, too */
static Device devices[GPUS][INSTANCES + 1];

static char *trim(char *from) {
    while (*from == ' ' || *from == '\t') from++;
    char *end = from + strlen(from);
    while (end > from && strchr(" \t\r", end[-1])) *--end = 0;
    return from;
}

static void load(void) {
    struct stat now;
    const char *path = getenv("NVML_STUB");
    if (!path || stat(path, &now)) return; /* it is gone: the last scene stands */
    if (now.st_ino == known.st_ino && now.st_size == known.st_size
        && now.st_mtim.tv_sec == known.st_mtim.tv_sec && now.st_mtim.tv_nsec == known.st_mtim.tv_nsec) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    known = now;
    count = 0;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) && count < ROWS) {
        char *equals = strchr(line, '=');
        if (!equals || *trim(line) == '#') continue;
        *equals = 0;
        snprintf(rows[count].key, sizeof rows[count].key, "%s", trim(line));
        snprintf(rows[count++].value, sizeof rows[count].value, "%s", trim(equals + 1));
    }
}

static int find(const char *key, char *value, size_t size) {
    for (int i = count - 1; i >= 0; i--)
        if (!strcmp(rows[i].key, key)) { snprintf(value, size, "%s", rows[i].value); return 1; }
    return 0;
}

static int get(const char *key, char *value, size_t size) {
    pthread_mutex_lock(&mutex);
    int found = find(key, value, size);
    pthread_mutex_unlock(&mutex);
    return found;
}

static void refresh(void) {
    pthread_mutex_lock(&mutex);
    load();
    pthread_mutex_unlock(&mutex);
}

static u64 number(const char *key, u64 otherwise) {
    char value[160];
    return get(key, value, sizeof value) ? strtoull(value, NULL, 0) : otherwise;
}

/* A key of a device: its own, or the one of all. */
static int told(Device *d, const char *key, char *value, size_t size) {
    char name[96];
    if (d->instance >= 0) {
        snprintf(name, sizeof name, "gpu%d.mig%d.%s", d->gpu, d->instance, key);
        return get(name, value, size);
    }
    snprintf(name, sizeof name, "gpu%d.%s", d->gpu, key);
    if (get(name, value, size)) return 1;
    snprintf(name, sizeof name, "gpu.%s", key);
    return get(name, value, size);
}

/* What every call does first: whether the driver, the function and the device are there, and how long it takes. */
static int enter(const char *function, Device *d) {
    char key[96], value[160];
    refresh();
    for (; number("driver.hang", 0); refresh()) usleep(20000);
    snprintf(key, sizeof key, "slow.%s", function);
    usleep(1000 * number(key, 0));
    if (number("driver.gone", 0)) return UNINITIALIZED;
    snprintf(key, sizeof key, "fail.%s", function);
    int code = number(key, OK);
    if (code) return code;
    if (!d) return OK;
    Device whole = {d->gpu, -1};
    if (told(&whole, "lost", value, sizeof value) && atoi(value)) return GPU_IS_LOST;
    return OK;
}

#define ENTER(device) do { int code_ = enter(__func__, device); if (code_) return code_; } while (0)

static int whole(Device *d, const char *key, u64 *out) {
    char value[160];
    if (!told(d, key, value, sizeof value)) return NOT_SUPPORTED;
    *out = strtoull(value, NULL, 0);
    return OK;
}

static int small(Device *d, const char *key, unsigned *out) {
    u64 value;
    int code = whole(d, key, &value);
    if (!code) *out = value;
    return code;
}

static int words(Device *d, const char *key, char *out, unsigned size) {
    return told(d, key, out, size) ? OK : NOT_SUPPORTED;
}

/* The driver */

int nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER(NULL); return number("driver.init", OK); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the stub"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    ENTER(NULL);
    return get("driver.version", out, size) ? OK : NOT_SUPPORTED;
}
int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size) {
    char key[64];
    ENTER(NULL);
    snprintf(key, sizeof key, "process.%u", pid);
    return get(key, out, size) ? OK : NOT_FOUND;
}
int nvmlDeviceGetCount_v2(unsigned *out) { ENTER(NULL); *out = number("driver.count", 0); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) {
    refresh();
    if (index >= GPUS || index >= number("driver.count", 0)) return INVALID_ARGUMENT;
    *out = &devices[index][INSTANCES];
    **out = (Device){index, -1};
    ENTER(*out);
    return OK;
}

/* A card */

int nvmlDeviceGetUUID(Device *d, char *out, unsigned size) { ENTER(d); return words(d, "uuid", out, size); }
int nvmlDeviceGetName(Device *d, char *out, unsigned size) { ENTER(d); return words(d, "name", out, size); }
int nvmlDeviceGetPciInfo_v3(Device *d, char *info) { ENTER(d); return words(d, "bus_id", info + 36, 32); }

int nvmlDeviceGetUtilizationRates(Device *d, unsigned *out) {
    ENTER(d);
    out[1] = 0;
    small(d, "memory_utilization", &out[1]);
    return small(d, "utilization", &out[0]);
}

int nvmlDeviceGetMemoryInfo(Device *d, u64 *out) { /* total, free, used */
    ENTER(d);
    if (whole(d, "memory_total", &out[0])) return NOT_SUPPORTED;
    whole(d, "memory_used", &out[2]);
    out[1] = out[0] - out[2];
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(Device *d, u64 *out) { /* version, total, reserved, free, used */
    ENTER(d);
    if (whole(d, "memory_reserved", &out[2]) || whole(d, "memory_total", &out[1])) return NOT_SUPPORTED;
    whole(d, "memory_used", &out[4]);
    out[3] = out[1] - out[4] - out[2];
    return OK;
}

#define READING(function, key) int function(Device *d, unsigned *out) { ENTER(d); return small(d, key, out); }
READING(nvmlDeviceGetPowerUsage, "power")
READING(nvmlDeviceGetEnforcedPowerLimit, "power_limit")
READING(nvmlDeviceGetPowerManagementLimit, "power_limit")
READING(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default")
READING(nvmlDeviceGetPerformanceState, "pstate")
READING(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
READING(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max")
READING(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
READING(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")

int nvmlDeviceGetTotalEnergyConsumption(Device *d, u64 *out) { ENTER(d); return whole(d, "energy", out); }
int nvmlDeviceGetCurrentClocksEventReasons(Device *d, u64 *out) { ENTER(d); return whole(d, "reasons", out); }
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *d, u64 *out) { ENTER(d); return whole(d, "reasons", out); }
int nvmlDeviceGetTemperature(Device *d, int sensor, unsigned *out) {
    (void)sensor;
    ENTER(d);
    return small(d, "temperature", out);
}
int nvmlDeviceGetMarginTemperature(Device *d, unsigned *out) { /* version, margin */
    ENTER(d);
    return small(d, "temperature_margin", &out[1]);
}
int nvmlDeviceGetTemperatureThreshold(Device *d, int which, unsigned *out) {
    char key[32];
    ENTER(d);
    snprintf(key, sizeof key, "threshold.%d", which);
    return small(d, key, out);
}
int nvmlDeviceGetClockInfo(Device *d, int which, unsigned *out) {
    ENTER(d);
    return small(d, which == 1 ? "sm_clock" : "memory_clock", out);
}
int nvmlDeviceGetMaxClockInfo(Device *d, int which, unsigned *out) {
    ENTER(d);
    return small(d, which == 1 ? "sm_clock_max" : "memory_clock_max", out);
}
int nvmlDeviceGetPcieThroughput(Device *d, int which, unsigned *out) {
    ENTER(d);
    return small(d, which == 0 ? "pcie_tx" : "pcie_rx", out);
}
int nvmlDeviceGetTotalEccErrors(Device *d, int type, int counter, u64 *out) {
    (void)counter;
    ENTER(d);
    return whole(d, type == 1 ? "ecc_errors" : "ecc_corrected", out);
}
int nvmlDeviceGetRemappedRows(Device *d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    ENTER(d);
    *corrected = *uncorrected = *pending = *failed = 0;
    small(d, "remap_pending", pending);
    small(d, "remap_failed", failed);
    return small(d, "remapped_rows", uncorrected);
}

/* Readings by number */

typedef struct {
    unsigned id, scope;
    long long time, latency;
    int type, code;
    union { double d; unsigned ui; u64 ull; int si; } value;
} Field;

int nvmlDeviceGetFieldValues(Device *d, int n, Field *fields) {
    char key[32], value[160];
    ENTER(d);
    for (int i = 0; i < n; i++) {
        Field *f = &fields[i];
        snprintf(key, sizeof key, "field.%u", f->id);
        f->code = told(d, key, value, sizeof value) ? OK : NOT_SUPPORTED;
        if (f->code) continue;
        char *colon = strchr(value, ':');
        const char *given = colon ? colon + 1 : value;
        f->value.ull = 0xAAAAAAAAAAAAAAAAull; /* a member that is read by the wrong type shows */
        if (!colon || !strncmp(value, "uint", 4)) { f->type = 1; f->value.ui = strtoul(given, NULL, 0); }
        else if (!strncmp(value, "ull", 3)) { f->type = 3; f->value.ull = strtoull(given, NULL, 0); }
        else if (!strncmp(value, "double", 6)) { f->type = 0; f->value.d = strtod(given, NULL); }
        else if (!strncmp(value, "sint", 4)) { f->type = 5; f->value.si = atoi(given); }
        else f->code = atoi(given);
    }
    return OK;
}

/* Counters between two samples: the stub's metrics do not depend on the samples, only on what the file says. */

typedef struct { Device *device; } Sample;
typedef struct { unsigned id; int code; double value; const char *names[3]; } Metric;
typedef struct { unsigned version, n; Sample *before, *after; Metric metrics[1]; } Metrics;

int nvmlGpmQueryDeviceSupport(Device *d, unsigned *out) { /* version, supported */
    char value[160];
    ENTER(d);
    out[1] = told(d, "gpm.2", value, sizeof value) || told(&devices[d->gpu][0], "gpm.2", value, sizeof value);
    return OK;
}
int nvmlGpmSampleAlloc(Sample **out) { ENTER(NULL); *out = calloc(1, sizeof **out); return OK; }
int nvmlGpmSampleFree(Sample *sample) { free(sample); return OK; }
int nvmlGpmSampleGet(Device *d, Sample *sample) { ENTER(d); sample->device = d; return OK; }
int nvmlGpmMigSampleGet(Device *d, unsigned instance, Sample *sample) {
    ENTER(d);
    if (instance >= INSTANCES) return INVALID_ARGUMENT;
    sample->device = &devices[d->gpu][instance];
    return OK;
}
int nvmlGpmMetricsGet(Metrics *request) {
    char key[32], value[160];
    ENTER(request->after->device);
    for (unsigned i = 0; i < request->n; i++) {
        Metric *m = &request->metrics[i];
        snprintf(key, sizeof key, "gpm.%u", m->id);
        m->code = told(request->after->device, key, value, sizeof value) ? OK : NOT_SUPPORTED;
        if (!m->code) m->value = strtod(value, NULL);
    }
    return OK;
}

/* Instances, processes, events */

int nvmlDeviceGetMigMode(Device *d, unsigned *current, unsigned *pending) {
    unsigned instances;
    ENTER(d);
    int code = small(d, "mig", &instances);
    if (!code) *current = *pending = instances > 0;
    return code;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *d, unsigned *out) { (void)d; *out = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device *d, unsigned index, Device **out) {
    unsigned instances = 0;
    ENTER(d);
    small(d, "mig", &instances);
    if (index >= instances) return NOT_FOUND;
    *out = &devices[d->gpu][index];
    **out = (Device){d->gpu, index};
    return OK;
}
int nvmlDeviceGetGpuInstanceId(Device *d, unsigned *out) { ENTER(d); *out = d->instance; return OK; }

typedef struct { unsigned pid; u64 used; unsigned instance, compute; } Process;

int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, unsigned *n, Process *out) {
    char value[160];
    unsigned room = *n, found = 0;
    ENTER(d);
    if (!told(d, "processes", value, sizeof value)) return NOT_SUPPORTED;
    char *rest = value, *word;
    while ((word = strsep(&rest, " "))) {
        char *colon = strchr(word, ':');
        if (!colon) continue;
        if (out && found < room)
            out[found] = (Process){atoi(word), colon[1] == 'u' ? ~0ull : strtoull(colon + 1, NULL, 0), 0, 0};
        found++;
    }
    *n = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

typedef struct { Device *device; u64 type, data; unsigned instance, compute; } Event;
static int told_xid[GPUS];

int nvmlEventSetCreate(int **out) { ENTER(NULL); *out = calloc(1, sizeof **out); return OK; }
int nvmlEventSetFree(int *set) { free(set); return OK; }
int nvmlDeviceGetSupportedEventTypes(Device *d, u64 *out) { ENTER(d); *out = 8; return OK; }
int nvmlDeviceRegisterEvents(Device *d, u64 types, int *set) { (void)types; ENTER(d); *set |= 1 << d->gpu; return OK; }
int nvmlEventSetWait_v2(int *set, Event *out, unsigned milliseconds) {
    for (unsigned waited = 0; ; waited += 20) {
        refresh();
        if (number("driver.gone", 0)) return UNINITIALIZED;
        for (int gpu = 0; gpu < GPUS; gpu++) {
            unsigned xid = 0;
            Device *d = &devices[gpu][INSTANCES];
            if (!(*set & 1 << gpu)) continue;
            small(d, "xid", &xid);
            if (xid && (int)xid != told_xid[gpu]) {
                told_xid[gpu] = xid;
                *out = (Event){d, 8, xid, 0, 0};
                return OK;
            }
            told_xid[gpu] = xid;
        }
        if (waited >= milliseconds) return TIMEOUT;
        usleep(20000);
    }
}
