package pairs

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// onMariaDB are the levels that MariaDB does not have, or that are left to PostgreSQL.
const onMariaDB = "face=pgx place=handle place=database place=wrap settings=tenant pipeline=16 credentials=rotating hosts=several commit=off event=kill river=on"

func TestPairs(t *testing.T) {
	t.Parallel()
	pairsOn(t, testbed.Postgres, "")
}

func TestPairsOnMariaDB(t *testing.T) {
	t.Parallel()
	pairsOn(t, testbed.MariaDB, onMariaDB)
}

// pairsOn runs each pair of levels, and in the long form each triple, in two rounds.
// PAIRS names one configuration instead, such as "face=pgx replicas=auto", or the probes.
func pairsOn(t *testing.T, engine testbed.Engine, banned string) {
	w := newWorld(t, engine)
	strength, seed := 2, uint64(1) // the same array each time: what is red by chance helps nobody
	if randomtest.Long() || os.Getenv("POOLDRIVER_SEED") != "" {
		seed = randomtest.Seed(t)
	}
	if randomtest.Long() {
		strength = 3
	}
	all := covering(strength, 1, banned)
	switch one := os.Getenv("PAIRS"); one {
	case "":
		defer probe(t, w, seed)
	case "probes":
		probe(t, w, seed)
		return
	default:
		all = []configuration{parse(t, one)}
	}
	var to results
	for round := range randomtest.Rounds(1, 2) {
		for i, c := range all {
			t.Run(fmt.Sprintf("%d/%d", round, i), func(t *testing.T) {
				defer randomtest.Watch(t, 10*time.Minute)()
				begun := time.Now()
				r := w.play(t, c, seed+uint64(i+1000*round), nil, 0)
				missing := to.add(r)
				t.Logf("CONFIGURATION %s\n%v, %d acts, %d refused, slowest %v; not exercised: %v", c, time.Since(begun).Round(time.Millisecond), r.performed.Load(), r.refusals.Load(), time.Duration(r.slowest.Load()).Round(time.Millisecond), missing)
				for i, a := range axes {
					if a.acted != nil && quietAxis(c, a.name) && !slices.Contains(missing, a.name+"="+a.levels[c[i]]) {
						t.Errorf("%s acts: is the fault mended that kept it from acting? Then take it from the list of known faults", a.name)
					}
				}
				for _, f := range r.found() {
					if k := knownFault(engine, c, f); k != nil {
						t.Logf("known: %s: %s", k.kind, f)
					} else {
						t.Errorf("FAULT %s", f)
					}
				}
			})
		}
	}
	to.tell(t, engine, banned)
}

func (f *fault) String() string {
	return fmt.Sprintf("%s | %s | %d times | %s", f.judge, f.act, f.times, f.first)
}

func (r *run) found() (all []*fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *fault) int { return cmp.Or(cmp.Compare(a.judge, b.judge), cmp.Compare(a.act, b.act)) })
	return all
}

// results are the pairs that have acted together on an act, and the pairs that were in a run and have not.
type results struct {
	works  map[cell]bool
	silent map[cell]string // the last configuration
	byAct  map[string]map[string]bool
	counts map[string]uint64
}

// add adds a run, and returns the axes that have acted on none of its acts.
func (to *results) add(r *run) (missing []string) {
	if to.works == nil {
		*to = results{map[cell]bool{}, map[cell]string{}, map[string]map[string]bool{}, map[string]uint64{}}
	}
	s := r.connector.Stats()
	for name, n := range map[string]uint64{
		"Reclaims": s.Reclaims, "ReadAheads": s.ReadAheads, "TxRetries": s.TxRetries, "Retries": s.Retries, "Cleanings": s.Cleanings, "Rollbacks": s.Rollbacks,
		"Pipelined": s.Pipelined, "PipelineRepeats": s.PipelineRepeats, "StateDropped": s.StateDropped, "Shed": s.Pool.Shed,
	} {
		to.counts[name] += n
	}
	all := make([]bool, len(axes))
	for name, t := range r.tallies {
		acted := make([]bool, len(axes))
		for i, a := range axes {
			level := a.levels[r.cfg[i]]
			acted[i] = a.acted == nil || a.acted(evidence{r.before, s, &r.events, t}, level)
			if all[i] = all[i] || acted[i]; acted[i] && t.performed.Load() > 0 {
				if to.byAct[name] == nil {
					to.byAct[name] = map[string]bool{}
				}
				to.byAct[name][a.name+"="+level] = true
			}
		}
		for i := range axes {
			for j := i + 1; j < len(axes); j++ {
				k := cell{{int8(i), int8(r.cfg[i])}, {int8(j), int8(r.cfg[j])}, {-1}}
				if acted[i] && acted[j] && t.performed.Load() > 0 {
					to.works[k] = true
				} else if to.silent[k] == "" {
					to.silent[k] = r.cfg.String()
				}
			}
		}
	}
	for i, a := range axes {
		if !all[i] {
			missing = append(missing, a.name+"="+a.levels[r.cfg[i]])
		}
	}
	return missing
}

// tell fails the long form for a pair that has not acted, and prints the table.
func (to *results) tell(t *testing.T, engine testbed.Engine, banned string) {
	open, refused := cells(2, banned)
	var silent, excused []string
	for _, k := range open {
		switch {
		case to.works[k] || to.silent[k] == "": // or refused by several refusals together
		case quietIn(k, k.alone()), quietIn(k, parse(t, to.silent[k])):
			excused = append(excused, k.String())
		default:
			silent = append(silent, k.String()+" ("+to.silent[k]+")")
		}
	}
	t.Logf("%d pairs work, %d are refused, %d cannot act because of a known fault, %d were not exercised: %s", len(to.works), refused, len(excused), len(silent), strings.Join(silent, "; "))
	t.Logf("counts: %v", to.counts)
	if page := os.Getenv("PAIRS_PAGE"); page != "" {
		require.NoError(t, to.print(page, engine, banned, refused, excused, silent))
	}
	if randomtest.Long() && os.Getenv("PAIRS") == "" {
		for _, s := range silent {
			t.Errorf("not exercised: %s", s)
		}
	}
}

// quietIn reports whether a known fault keeps an axis of a cell from acting in a configuration.
func quietIn(k cell, c configuration) bool {
	return slices.ContainsFunc(k.axes(), func(p [2]int8) bool { return quietAxis(c, axes[p[0]].name) })
}
