// Package histogram counts durations in buckets, without a lock.
package histogram

import (
	"sync/atomic"
	"time"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// Bounds are the upper bounds of the buckets, in rising order. A histogram has one bucket more.
var Bounds = [...]time.Duration{
	10 * us, 25 * us, 50 * us, 100 * us, 250 * us, 500 * us,
	ms, 2500 * us, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms,
	time.Second, 2500 * ms, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// Snapshot is a histogram at a moment. Buckets[i] counts the durations of at most
// Bounds[i]; Count is the sum of all buckets.
type Snapshot struct {
	Count   uint64
	Sum     time.Duration
	Buckets [len(Bounds) + 1]uint64
}

// Histogram counts durations. The zero value is empty. It is safe for concurrent use.
type Histogram struct {
	sum     atomic.Int64
	buckets [len(Bounds) + 1]atomic.Uint64
}

// Record counts a duration weight times.
func (h *Histogram) Record(d time.Duration, weight uint64) {
	h.buckets[Bucket(d)].Add(weight)
	h.sum.Add(int64(d) * int64(weight))
}

// Bucket is the number of d's bucket. Most durations are short.
func Bucket(d time.Duration) int {
	for i, bound := range Bounds {
		if d <= bound {
			return i
		}
	}
	return len(Bounds)
}

// Snapshot returns what was counted so far. What is recorded meanwhile may be missing in
// the sum or in a bucket.
func (h *Histogram) Snapshot() Snapshot {
	s := Snapshot{Sum: time.Duration(h.sum.Load())}
	for i := range h.buckets {
		n := h.buckets[i].Load()
		s.Buckets[i] = n
		s.Count += n
	}
	return s
}
