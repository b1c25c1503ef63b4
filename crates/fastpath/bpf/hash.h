/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Keyed hashing of the tables' keys: crates/tables/src/hash.rs in C. */
#ifndef TOMBOLO_HASH_H
#define TOMBOLO_HASH_H

#include "plan.h"

struct buckets {
	__u32 first;
	__u32 second;
};

/* A bijection in which every input bit reaches every output bit. */
static __always_inline __u64 mix(__u64 h)
{
	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ULL;
	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ULL;
	return h ^ h >> 32;
}

/* Both factors are secret, and the product is as wide as both. */
static __always_inline __u64 product(__u64 word, __u32 low_key, __u32 high_key)
{
	__u32 low = (__u32)word + low_key, high = (__u32)(word >> 32) + high_key;

	return (__u64)low * high;
}

static __always_inline __u64 hash_by(const volatile struct hash_key *key, __u64 a, __u64 b, __u64 c)
{
	return mix(product(a, key->halves[0], key->halves[1]) +
		   product(b, key->halves[2], key->halves[3]) +
		   product(c, key->halves[4], key->halves[5]) + key->offset);
}

/* By the tables' own secret. */
static __always_inline __u64 hash(__u64 a, __u64 b, __u64 c)
{
	return hash_by(&plan.hash_key, a, b, c);
}

/* The two candidate buckets of `count`. */
static __always_inline struct buckets buckets_of(__u64 hash, __u32 count)
{
	return (struct buckets){
		.first = (hash & 0xffffffff) * count >> 32,
		.second = (hash >> 32) * count >> 32,
	};
}

/* A tag that is never zero and does not repeat what chose the buckets. */
static __always_inline __u32 tag_of(__u64 hash)
{
	__u32 tag = (hash ^ hash >> 29) * 0x9e3779b97f4a7c15ULL >> 32;

	return tag ? tag : 1;
}

static __always_inline __u64 rehash(__u64 hash)
{
	return mix(hash ^ 0x9e3779b97f4a7c15ULL);
}

#endif
