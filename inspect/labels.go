package inspect

import (
	"cmp"
	"slices"
	"time"
)

// LabelUse describes the connections and the waits of the work with one label.
type LabelUse struct {
	Label          string // see pooldriver.Label; empty: work without a label
	Holds, Running int    // connections, and those of them that run a statement
	Waiting        int    // statements that wait for a connection
	LongestHold    time.Duration
	LongestWait    time.Duration
	Held           time.Duration // sum, of the connections that the work has now
	Idle           time.Duration // the part of Held in which no statement was running
	Statement      string        // the statement with the largest part of Held
}

// labelsOf adds up by label. The label that has held most comes first.
func labelsOf(p Pool) (all []LabelUse) {
	of := func(label string) *LabelUse {
		return entry(&all, func(l LabelUse) bool { return l.Label == label }, LabelUse{Label: label})
	}
	type text struct{ label, statement string }
	texts := map[text]time.Duration{}
	for _, h := range p.Holders {
		l, held := of(h.Label), max(0, p.At.Sub(h.Since))
		l.Holds++
		if h.Running {
			l.Running++
		}
		l.LongestHold = max(l.LongestHold, held)
		l.Held += held
		l.Idle += h.IdlePinned
		texts[text{h.Label, h.Statement}] += held
		if l.Statement == "" || texts[text{h.Label, h.Statement}] > texts[text{h.Label, l.Statement}] {
			l.Statement = h.Statement
		}
	}
	for _, w := range p.Waiters {
		if w.Follows {
			continue
		}
		l := of(w.Label)
		l.Waiting++
		l.LongestWait = max(l.LongestWait, p.At.Sub(w.Since))
	}
	slices.SortStableFunc(all, func(a, b LabelUse) int {
		return cmp.Or(cmp.Compare(b.Held, a.Held), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Label, b.Label))
	})
	return atMost(maxRows, all)
}
