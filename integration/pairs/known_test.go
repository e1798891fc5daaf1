package pairs

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// known is a fault that is open. Elsewhere it fails no test. Its probe looks for it, and a probe that does not find it any
// more fails: who mends a fault takes it from the list.
type known struct {
	kind   string         // in a few words
	engine testbed.Engine // nil: PostgreSQL
	in     string         // a pattern of the configurations that have it
	acts   []string       // that have it, or run for what concerns no single act; nil: each act
	judges []string       // that see it
	// quiet are axes that cannot act because of it. An axis that acts again fails the test, too.
	quiet []string
	// apart keeps its acts out of other runs with the pattern, because what follows them fails, too.
	apart bool
	// probe is the configuration of its probe, in which the acts with, or acts, are performed. Empty: nothing but a run of
	// the whole list shows it.
	probe string
	with  []string
	n     int // how many acts the probe performs at most; 0: 480
}

var knownFaults = []known{
	{kind: "pgx: through Wrap nobody counts what pgx keeps", in: "face=pgx place=wrap cache=128|1", quiet: []string{"cache"}},
	{
		kind: "replicas: what a replica refuses goes to the primary, and both count it", in: "replicas=explicit|tx|auto overload=on", acts: []string{"run"},
		judges: []string{"figures"},
	},
}

func (k *known) on(engine testbed.Engine) bool {
	if k.engine == nil {
		return engine == testbed.Postgres
	}
	return k.engine == engine
}

// knownFault returns the entry of what a judge has seen, or nil.
func knownFault(engine testbed.Engine, c configuration, f *fault) *known {
	for i := range knownFaults {
		k := &knownFaults[i]
		if k.on(engine) && c.has(k.in) && slices.Contains(k.judges, f.judge) && (k.acts == nil || slices.Contains(k.acts, f.act)) {
			return k
		}
	}
	return nil
}

// apart reports whether an act is performed only in the probe of a known fault.
func apart(engine testbed.Engine, c configuration, act string) bool {
	return slices.ContainsFunc(knownFaults, func(k known) bool {
		return k.apart && k.on(engine) && c.has(k.in) && slices.Contains(k.acts, act)
	})
}

// quietAxis reports whether a known fault keeps an axis from acting.
func quietAxis(c configuration, axis string) bool {
	return slices.ContainsFunc(knownFaults, func(k known) bool { return c.has(k.in) && slices.Contains(k.quiet, axis) })
}

// probe looks for each known fault of an engine.
func probe(t *testing.T, w *world, seed uint64) {
	for i := range knownFaults {
		k := &knownFaults[i]
		if k.probe == "" || !k.on(w.Primary.Engine) {
			continue
		}
		t.Run(k.kind, func(t *testing.T) {
			c := parse(t, k.probe)
			require.True(t, c.has(k.in), "the probe has the fault")
			with := k.with
			if with == nil {
				with = k.acts
			}
			defer randomtest.Watch(t, 10*time.Minute)()
			most := cmp.Or(int64(k.n), 480)
			r := w.play(t, c, seed, with, most)
			for _, f := range r.found() {
				if k := knownFault(w.Primary.Engine, c, f); k == nil {
					t.Errorf("FAULT %s", f)
				} else {
					t.Logf("%s: %s", k.kind, f)
				}
			}
			seen := slices.ContainsFunc(r.found(), func(f *fault) bool { return knownFault(w.Primary.Engine, c, f) == k })
			switch n, slowest := r.performed.Load(), time.Duration(r.slowest.Load()); {
			case seen:
			case n < most || slowest > 3*delay:
				t.Logf("not seen in %d acts; the machine is too busy for a verdict: an answer took %v", n, slowest)
			default:
				t.Errorf("not seen in %d acts: is it mended? Then take it from the list of known faults", n)
			}
		})
	}
}
