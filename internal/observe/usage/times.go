package usage

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/internal/observe/histogram"
)

// Times has for each statement how long it takes: usually, and of late. Statements are told apart by their outline, so that no
// literal stays in memory. Times is safe for concurrent use, and bounded.
type Times struct {
	// Outline is a text without literals. It is set before the first use.
	Outline func(text *string) string

	mu      sync.Mutex // protects following fields
	seed    maphash.Seed
	quiet   bool // the last second was one without trouble
	second  int64
	aged    int64
	byText  map[uint64]*Time // by the hash of a text
	outline map[string]*Time
}

// Time is how long the executions of one statement took, until their answer.
type Time struct {
	old, young runs // of seconds without trouble; young: of the last minutes
	slow       runs // of the last minutes, while slower: an incident must not become its own measure
	slower     bool // in the last second the statement took much longer than usual
	all        uint64
	last       [lately]int64 // the last executions, in a ring
	at         int64         // when the last one ended, by the clock
}

// runs counts executions by their time.
type runs [len(histogram.Bounds) + 1]uint32

const (
	lately = 9 // how many executions are "of late"
	// mostTexts and mostOutlines are how many are remembered. A text above longestText bytes is not.
	mostTexts, mostOutlines = 2000, 500
	longestText             = 8192
	// fewRuns is how many executions must be known before anything counts as usual.
	fewRuns = 20
	// agesAfter is how long an execution is young.
	agesAfter = int64(5 * time.Minute)
)

// sample is an execution that was timed.
type sample struct {
	text   *string
	took   time.Duration
	failed bool
}

// add counts executions that have ended until now.
func (t *Times) add(samples []sample, now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range samples {
		one := t.ofLocked(s.text)
		if t.quiet && !s.failed { // who waits for a lock until a timeout ends it says nothing of what is usual
			to := &one.young
			if one.slower {
				to = &one.slow
			}
			to[histogram.Bucket(s.took)]++
		}
		one.last[one.all%lately] = int64(s.took)
		one.all++
		one.at = now
	}
}

// ofLocked returns the Time of a text, which it makes if there is none.
func (t *Times) ofLocked(text *string) *Time {
	if t.outline == nil {
		t.seed, t.byText, t.outline = maphash.MakeSeed(), map[uint64]*Time{}, map[string]*Time{}
	}
	hash := maphash.String(t.seed, *text)
	if one := t.byText[hash]; one != nil {
		return one
	}
	if len(t.byText) >= mostTexts {
		clear(t.byText)
	}
	outline := t.Outline(text)
	one := t.outline[outline]
	if one == nil {
		t.makeRoomLocked()
		one = new(Time)
		t.outline[outline] = one
	}
	t.byText[hash] = one
	return one
}

// makeRoomLocked forgets the statements that have run least, if there are too many.
func (t *Times) makeRoomLocked() {
	for few := uint64(1); len(t.outline) >= mostOutlines; few *= 4 {
		for outline, one := range t.outline {
			if one.all <= few {
				delete(t.outline, outline)
			}
		}
		clear(t.byText)
	}
}

// Second ends a second. quiet: in the next one executions count for what is usual.
func (t *Times) Second(now int64, quiet bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.outline {
		if one.at >= t.second {
			usual := one.Usual()
			one.slower = usual > 0 && one.Lately() > 2*usual
		}
	}
	t.quiet, t.second = quiet, now
	if now-t.aged < agesAfter {
		return
	}
	t.aged = now
	for _, one := range t.outline {
		for i := range one.old {
			one.old[i] += one.young[i] + one.slow[i]
		}
		one.young, one.slow = runs{}, runs{}
	}
}

// Each calls fn for each statement whose last execution has ended at since or later.
func (t *Times) Each(since int64, fn func(outline string, one *Time, at int64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for outline, one := range t.outline {
		if one.at >= since {
			fn(outline, one, one.at)
		}
	}
}

// Usual is the Usual of the statement with this outline.
func (t *Times) Usual(outline string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outline[outline].Usual()
}

// Usual is the time that nine of ten executions took at most while nothing was wrong, as a bucket's bound; 0: too few are known.
// Executions of the last minutes count only if there are too few that are older.
func (t *Time) Usual() time.Duration {
	if t == nil {
		return 0
	}
	usual := t.old
	if usual.count() < fewRuns {
		for i, n := range t.young {
			usual[i] += n
		}
	}
	all := usual.count()
	if all < fewRuns {
		return 0
	}
	below := uint64(0)
	for i, bound := range histogram.Bounds {
		if below += uint64(usual[i]); below*10 >= all*9 {
			return bound
		}
	}
	return histogram.Bounds[len(histogram.Bounds)-1]
}

func (r *runs) count() (n uint64) {
	for _, in := range r {
		n += uint64(in)
	}
	return n
}

// Lately is the time that half of the last executions took at least.
func (t *Time) Lately() time.Duration {
	last := t.last
	slices.Sort(last[:])
	return time.Duration(last[lately-1-int(min(t.all, lately))/2]) // places that are not filled come first
}

// Runs is how many executions were timed.
func (t *Time) Runs() uint64 { return t.all }
