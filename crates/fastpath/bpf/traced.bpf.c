// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The fast path while somebody traces: the same, and packets are shown (tap.h). */
#define IS_TRACED
#include "fastpath.bpf.c"
