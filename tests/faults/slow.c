// A slow disk: write() to files whose names end in $SLOW_FILES waits as long as the file $SLOW_DISK is there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t write(int handle, const void *data, size_t size) {
    static ssize_t (*really)(int, const void *, size_t);
    if (!really) really = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    const char *stall = getenv("SLOW_DISK"), *files = getenv("SLOW_FILES");
    if (stall && files) {
        char link[64], path[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
        ssize_t length = readlink(link, path, sizeof path - 1);
        size_t end = strlen(files);
        if (length > (ssize_t)end && memcmp(path + length - end, files, end) == 0)
            while (access(stall, F_OK) == 0) usleep(1000);
    }
    return really(handle, data, size);
}
