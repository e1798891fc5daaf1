package metrics

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// A counter of Stats without a metric is one that nobody sees.
func TestEveryCounterOfStatsIsAMetric(t *testing.T) {
	elsewhere := map[string]bool{"Discards": true, "FoundDead": true, "WrongRoles": true} // in Closed
	fields := reflect.VisibleFields(reflect.TypeFor[pooldriver.Stats]())
	for _, f := range fields {
		if f.Type != reflect.TypeFor[pooldriver.ListenStats]() {
			continue
		}
		for _, below := range reflect.VisibleFields(f.Type) {
			below.Index = append(slices.Clone(f.Index), below.Index...)
			fields = append(fields, below)
		}
	}
	for _, f := range fields {
		if f.Type.Kind() != reflect.Uint64 || elsewhere[f.Name] {
			continue
		}
		var s pooldriver.Stats
		reflect.ValueOf(&s).Elem().FieldByIndex(f.Index).SetUint(7)
		shown := 0
		for _, m := range Figures {
			if m.Kind == Counter && m.Prometheus != "" {
				m.Get(&Snapshot{Stats: s}, func(v float64, _ ...string) {
					if v == 7 {
						shown++
					}
				})
			}
		}
		require.Equal(t, 1, shown, f.Name)
	}
}

func TestEachFigureHasNamesOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Figures {
		require.NotEmpty(t, f.OTel)
		require.False(t, seen["otel "+f.OTel], f.OTel)
		require.False(t, f.Prometheus != "" && seen[f.Prometheus], f.Prometheus)
		seen["otel "+f.OTel], seen[f.Prometheus] = true, true
		require.Equal(t, f.Kind == Seconds, f.Unit == "s", f.OTel)
		require.True(t, f.Prometheus == "" || f.Help != "", f.OTel)
	}
}
