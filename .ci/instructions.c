// A plugin of qemu that counts instructions, as callgrind prints them. Debian has no header for plugins; this is version 1 of the interface,
// of qemu 7.2.
#include <stdint.h>
#include <stdio.h>

typedef uint64_t plugin;
struct block;

void qemu_plugin_register_vcpu_tb_trans_cb(plugin id, void (*translated)(plugin id, struct block *block));
void qemu_plugin_register_vcpu_tb_exec_cb(struct block *block, void (*executed)(unsigned cpu, void *data), int registers, void *data);
void qemu_plugin_register_atexit_cb(plugin id, void (*ended)(plugin id, void *data), void *data);
size_t qemu_plugin_tb_n_insns(const struct block *block);

int qemu_plugin_version = 1;
static uint64_t instructions;

static void executed(unsigned cpu, void *data) { __atomic_fetch_add(&instructions, (uintptr_t)data, __ATOMIC_RELAXED); }

static void translated(plugin id, struct block *block)
{
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, 0, (void *)qemu_plugin_tb_n_insns(block));
}

static void ended(plugin id, void *data) { fprintf(stderr, "Collected : %ju\n", (uintmax_t)instructions); }

int qemu_plugin_install(plugin id, const void *info, int argc, char **argv)
{
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
