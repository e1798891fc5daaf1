package inspect

import (
	"cmp"
	"slices"
	"strings"
)

// Verdict says how the pool is, and what to do.
type Verdict struct {
	Rule     string // the row of the table that applies
	Level    string // "calm", "busy" or "bad"
	Sentence string
	Do       string // empty: nothing
}

// String is the sentence, and what to do.
func (v Verdict) String() string { return strings.TrimSpace(v.Sentence + " " + v.Do) }

// rule is a row of the table: if it applies, it says what is the case and what to do.
type rule struct {
	name    string
	level   string
	applies func(*facts) bool
	says    func(*facts) string
	do      string
}

// The levels of a rule, beside those of a Verdict.
const (
	calm = "calm"
	busy = "busy"
	bad  = "bad"
	// hurts is bad if statements wait or get no connection, and else busy.
	hurts = "hurts"
)

// subjects are the parts of a pool that are judged one by one. Of the rules of one subject the first that applies
// counts: it explains the later ones.
var subjects = [][]rule{connectRules, replicaRules, workRules, listenRules}

// Judge is a pure function of the pool's figures of now and of the last minute. The worst verdict comes first; of
// several the one of the earlier subject. The others follow if they are not calm.
func Judge(p Pool) (worst Verdict, besides []Verdict) { return judged(p, nil) }

// judged is Judge with a memory; nil: none.
func judged(p Pool, m *memory) (worst Verdict, besides []Verdict) {
	f := factsOf(p)
	for _, rules := range subjects {
		if i := slices.IndexFunc(rules, func(r rule) bool { return r.applies(f) }); i >= 0 {
			v := rules[i].verdict(f)
			if m != nil && &rules[0] == &workRules[0] {
				v = m.steady(p.At, v)
			}
			besides = append(besides, v)
		}
	}
	slices.SortStableFunc(besides, func(a, b Verdict) int { return cmp.Compare(rank(b.Level), rank(a.Level)) })
	worst, besides = besides[0], besides[1:]
	return worst, slices.DeleteFunc(besides, func(v Verdict) bool { return v.Level == calm })
}

func (r *rule) verdict(f *facts) Verdict {
	level := r.level
	if level == hurts {
		if level = busy; f.waits || f.failed != "" || f.Stats.Pool.Waiting > 0 || f.dialsFail && f.open == 0 {
			level = bad
		}
	}
	return Verdict{r.name, level, r.says(f), r.do}
}

// rank orders levels.
func rank(level string) int { return slices.Index([]string{"", calm, busy, bad}, level) }

// lowerFirst writes the beginning of a sentence inside another one.
func lowerFirst(sentence string) string {
	if sentence == "" {
		return ""
	}
	return strings.ToLower(sentence[:1]) + sentence[1:]
}
