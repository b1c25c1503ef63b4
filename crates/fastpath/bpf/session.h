/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Sessions in their table: crates/tables/src/session.rs, which draws the bytes and says how lines
 * overflow. The first one of a TCP binding lies in the binding's record: first.h.
 *
 * 	word     63        32  31          16  15    8  7     0
 * 	         | binding id | remote port  | state | flags |
 * 	         flags: 7 pending
 * 	                6 of the last entry: the line is marked, it has sessions in the overflow
 */
#ifndef TOMBOLO_SESSION_H
#define TOMBOLO_SESSION_H

#include "hash.h"
#include "tick.h"

SHARED_ARRAY(sessions, struct session_line);
SHARED_ARRAY(sessions_overflow, struct session_line);
SHARED_ARRAY(sessions_overflowed, __u64);

struct session_key {
	__u64 word;
	__u32 remote;
	__u32 unused;
};

/* The session of ICMP queries has no remote port (RFC 6146 section 3.1). */
static __always_inline struct session_key session_key(__u32 binding, __u32 remote,
						      __u16 remote_port, __u8 space)
{
	__u64 port = space == SPACE_ICMP ? 0 : remote_port;

	return (struct session_key){ .word = (__u64)binding << 32 | port << 16, .remote = remote };
}

static __always_inline __u64 session_hash(const struct session_key *key)
{
	return hash(key->word, key->remote, 0);
}

static __always_inline __u8 state_of(__u64 word)
{
	return word >> 8 & 15;
}

/* An entry that is claimed for another session has another word before it has another remote: who
 * goes on to read the word again, or to replace it, notices.
 */
static __always_inline bool has_key(const struct session *entry, __u64 word,
				    const struct session_key *key)
{
	return (word ^ key->word) >> 16 == 0 && (ORDER_WORDS(), READ(entry->remote) == key->remote);
}

static __always_inline struct session *find_in_line(struct session_line *line,
						    const struct session_key *key)
{
#pragma unroll
	for (int n = 0; n < 4; n++) {
		__u64 word = READ(line->entry[n].word);

		if (has_key(&line->entry[n], word, key) && !(word & SESSION_PENDING))
			return &line->entry[n];
	}
	return 0;
}

static __always_inline bool is_marked(const struct session_line *line)
{
	return READ(line->entry[3].word) & SESSION_MARK;
}

/* Not inlined: one look-up in a hundred comes here. */
static __noinline struct session *find_in_overflow(__u64 hash, __u64 word, __u32 remote)
{
	struct session_key key = { .word = word, .remote = remote };
	struct buckets at = buckets_of(rehash(hash), plan.overflow_lines);
	struct session_line *line = RECORD(sessions_overflow, at.first);
	struct session *found = line ? find_in_line(line, &key) : 0;

	if (found)
		return found;
	line = RECORD(sessions_overflow, at.second);
	return line ? find_in_line(line, &key) : 0;
}

static __always_inline struct session *find_session(const struct session_key *key)
{
	__u64 h = session_hash(key);
	struct buckets at = buckets_of(h, plan.session_lines);
	struct session_line *first = RECORD(sessions, at.first);
	struct session_line *second = RECORD(sessions, at.second);
	struct session *found;

	if (!first || !second)
		return 0;
	found = find_in_line(first, key);
	if (!found)
		found = find_in_line(second, key);
	if (!found && is_marked(first))
		found = find_in_overflow(h, key->word, key->remote);
	return found;
}

/* Replaces an entry's word, if it is `from` but for the mark, which stays as it is. */
static __always_inline bool replace_word(__u64 *place, __u64 from, __u64 to)
{
#pragma nounroll
	for (int race = 0; race < 3; race++) {
		__u64 word = READ(*place);

		if ((word ^ from) & ~SESSION_MARK)
			return false;
		if (SWAP(place, word, (to & ~SESSION_MARK) | (word & SESSION_MARK)))
			return true;
	}
	return false;
}

/* `seen` is read behind the word, or the silence of the entry's last session would be taken for this
 * one's.
 */
static __always_inline bool has_expired(const struct session *entry, __u64 word, __u32 now)
{
	return word >> 32 && !(word & (SESSION_PENDING | SESSION_COUNTED)) &&
	       (ORDER_WORDS(),
		ticks_since(now, READ(entry->seen)) >= plan.reuse_after[state_of(word)]);
}

/* Line `number` of the sessions; those of the overflow come behind the others. */
static __always_inline struct session_line *line_at(__u32 number)
{
	if (number < plan.session_lines)
		return RECORD(sessions, number);
	return RECORD(sessions_overflow, number - plan.session_lines);
}

static __always_inline bool claim_entry(struct session *entry, __u64 word)
{
	return SWAP(&entry->word, word, SESSION_CLAIMED | (word & SESSION_MARK));
}

/* Claims an entry that has expired, unless it was reused or refreshed meanwhile: the word alone does
 * not say whose it is, so the rest is looked at when nobody else can change it.
 */
static __always_inline bool take_over(struct session *entry, __u64 word, __u32 now)
{
	if (!replace_word(&entry->word, word, word | SESSION_PENDING))
		return false;
	if (has_expired(entry, word, now))
		return replace_word(&entry->word, word | SESSION_PENDING, SESSION_CLAIMED);
	replace_word(&entry->word, word | SESSION_PENDING, word);
	return false;
}

/* Bit of a claim's result: the entry was another session's, which had expired. */
#define CLAIM_REUSED 4

/* Only the outside has sent in it, and nobody counts it. */
static __always_inline bool gives_way(__u64 word)
{
	return word >> 32 && (word & (SESSION_PENDING | SESSION_COUNTED | SESSION_UNANSWERED)) ==
				     SESSION_UNANSWERED;
}

/* Claims the entry of a line that gives way, if there is one: its number, or -1. */
__noinline int claim_unanswered(__u32 number)
{
	struct session_line *line = line_at(number);

	if (!line)
		return -1;
#pragma unroll
	for (int n = 0; n < 4; n++) {
		__u64 word = READ(line->entry[n].word);

		if (gives_way(word) && claim_entry(&line->entry[n], word))
			return n;
	}
	return -1;
}

/* Claims a free entry of a line, or one that has expired: its number, or -1.
 *
 * A global function: the verifier looks at it once, on its own, and not again on each path that
 * leads here. So are the others of this kind.
 */
__noinline int claim_in(__u32 number, __u32 now)
{
	struct session_line *line = line_at(number);

	if (!line)
		return -1;
#pragma unroll
	for (int n = 0; n < 4; n++) {
		__u64 word = READ(line->entry[n].word);

		if (!(word & ~SESSION_MARK) && claim_entry(&line->entry[n], word))
			return n;
	}
#pragma unroll
	for (int n = 0; n < 4; n++) {
		__u64 word = READ(line->entry[n].word);

		if (has_expired(&line->entry[n], word, now) &&
		    take_over(&line->entry[n], word, now))
			return n | CLAIM_REUSED;
	}
	return -1;
}

/* Entries of a line that are free, or have expired. */
static __always_inline __u64 room_in(struct session_line *line, __u32 now)
{
	__u64 room = 0;

#pragma unroll
	for (int n = 0; n < 4; n++) {
		__u64 word = READ(line->entry[n].word);
		__u64 age = (__u64)now - READ(line->entry[n].seen),
		      limit = plan.reuse_after[state_of(word)];
		__u64 is_free = is_zero(word & ~SESSION_MARK);
		__u64 is_settled = is_zero(word & (SESSION_PENDING | SESSION_COUNTED)) &
				   ~is_zero(word >> 32);

		/* A `seen` in the future makes the age huge, and the last term 0. */
		room += is_free | (is_settled & ~is_less(age, limit) & ~(age >> 63) & 1);
	}
	return room;
}

/* Bit of a claim's result: the entry is in the second of two lines. */
#define CLAIM_SECOND 8

/* Claims an entry in the emptier of two lines, else in the other; negative if both are full. */
__noinline int claim_either(__u32 first, __u32 second, __u32 now)
{
	struct session_line *a = line_at(first), *b = line_at(second);
	int claimed, other;

	if (!a || !b)
		return -1;
	other = is_less(room_in(a, now), room_in(b, now)) ? CLAIM_SECOND : 0;
	claimed = claim_in(other ? second : first, now);
	if (claimed >= 0)
		return claimed | other;
	claimed = claim_in(other ? first : second, now);
	return claimed < 0 ? -1 : claimed | (other ^ CLAIM_SECOND);
}

/* Entries of a line that have the key, pending or live. */
static __always_inline __u64 entries_of(__u32 number, const struct session_key *key)
{
	struct session_line *line = line_at(number);
	__u64 count = 0;

	if (!line)
		return 0;
#pragma unroll
	for (int n = 0; n < 4; n++)
		count += is_zero((READ(line->entry[n].word) ^ key->word) >> 16 |
				 (READ(line->entry[n].remote) ^ key->remote));
	return count;
}

/* Entries that have the key, in all lines where it may be. */
static __always_inline __u64 entries_everywhere(const struct session_key *key, __u64 hash,
						bool overflows)
{
	struct buckets at = buckets_of(hash, plan.session_lines);
	__u64 count = entries_of(at.first, key);

	if (at.first != at.second)
		count += entries_of(at.second, key);
	if (!overflows)
		return count;
	at = buckets_of(rehash(hash), plan.overflow_lines);
	count += entries_of(plan.session_lines + at.first, key);
	if (at.first != at.second)
		count += entries_of(plan.session_lines + at.second, key);
	return count;
}

/* Fills a claimed entry and makes it live, unless another writer is at the same session: then this
 * one takes its entry back. In the engine the higher of two writers yields; here both may, and
 * the engine tries again. The lowest bits of `claimed` are the entry's number, `low` is the word's
 * state and flags.
 */
__noinline int fill_entry(const struct session_key *key, __u32 line_number, __u32 claimed,
			  __u32 low, __u32 now)
{
	struct session_line *line = line_at(line_number), *first;
	struct session *entry;
	__u64 live, h;

	if (!key || !line)
		return false;
	h = session_hash(key);
	first = line_at(buckets_of(h, plan.session_lines).first);
	if (!first)
		return false;
	entry = &line->entry[claimed & 3];
	live = key->word | (low & 0xffff);
	WRITE(entry->remote, key->remote);
	WRITE(entry->seen, now);
	if (!replace_word(&entry->word, SESSION_CLAIMED, live | SESSION_PENDING))
		return false;
	if (entries_everywhere(key, h, is_marked(first)) > 1) {
		replace_word(&entry->word, live | SESSION_PENDING, 0);
		return false;
	}
	return replace_word(&entry->word, live | SESSION_PENDING, live);
}

/* What came of opening a session. */
enum opened {
	/* No room for a session of the inside, or another writer is at it. */
	NOT_OPENED = 0,
	OPENED = 1,
	/* No room for what only the outside has sent in. */
	NO_ROOM = 2,
};

/* Makes a session where its own two lines are full: one in a hundred, at the highest load that the
 * tables are made for.
 */
static __always_inline int open_in_overflow(const struct session_key *key, __u64 hash, __u32 first,
					    __u32 low, __u32 now)
{
	struct buckets at = buckets_of(rehash(hash), plan.overflow_lines);
	__u64 *overflowed = RECORD(sessions_overflowed, 0);
	struct session_line *line = line_at(first);
	int claimed;

	if (!overflowed || !line)
		return NOT_OPENED;
	__sync_fetch_and_add(overflowed, 1);
	__sync_fetch_and_or(&line->entry[3].word, SESSION_MARK);
	at.first += plan.session_lines;
	at.second += plan.session_lines;
	claimed = claim_either(at.first, at.second, now);
	/* The one that it replaces was counted. */
	if (claimed < 0 || claimed & CLAIM_REUSED)
		__sync_fetch_and_add(overflowed, -1ULL);
	if (claimed < 0)
		return NOT_OPENED;
	if (fill_entry(key, claimed & CLAIM_SECOND ? at.second : at.first, claimed, low, now))
		return OPENED;
	__sync_fetch_and_add(overflowed, -1ULL);
	return NOT_OPENED;
}

/* Makes a session with state and flags `low`. Entries that have expired are reused. What only the
 * outside has sent in takes no room in the overflow, and gives way to the inside: session.rs.
 */
__noinline int open_session(const struct session_key *key, __u32 low, __u32 now)
{
	struct buckets at;
	int claimed;
	__u64 h;

	if (!key)
		return NOT_OPENED;
	h = session_hash(key);
	at = buckets_of(h, plan.session_lines);
	claimed = claim_either(at.first, at.second, now);
	if (claimed < 0) {
		if (low & SESSION_UNANSWERED)
			return NO_ROOM;
		claimed = claim_unanswered(at.first);
		if (claimed < 0) {
			claimed = claim_unanswered(at.second);
			if (claimed >= 0)
				claimed |= CLAIM_SECOND;
		}
	}
	if (claimed < 0)
		return open_in_overflow(key, h, at.first, low, now);
	if (fill_entry(key, claimed & CLAIM_SECOND ? at.second : at.first, claimed, low, now))
		return OPENED;
	return NOT_OPENED;
}

static __always_inline bool remove_entry(struct session *entry, const struct session_key *key)
{
	__u64 word = READ(entry->word);

	return has_key(entry, word, key) && replace_word(&entry->word, word, 0);
}

/* Takes a session back that was just made. */
__noinline int take_back_session(const struct session_key *key)
{
	__u64 *overflowed = RECORD(sessions_overflowed, 0), h;
	struct session_line *first, *second;
	struct session *found;
	struct buckets at;

	if (!key || !overflowed)
		return false;
	h = session_hash(key);
	at = buckets_of(h, plan.session_lines);
	first = RECORD(sessions, at.first);
	second = RECORD(sessions, at.second);
	if (!first || !second)
		return false;
	found = find_in_line(first, key);
	if (!found)
		found = find_in_line(second, key);
	if (found)
		return remove_entry(found, key);
	found = find_in_overflow(h, key->word, key->remote);
	if (!found || !remove_entry(found, key))
		return false;
	__sync_fetch_and_add(overflowed, -1ULL);
	return true;
}

#endif
