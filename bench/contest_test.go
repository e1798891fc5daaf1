package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func takes(d time.Duration) func(*testing.B) {
	return func(b *testing.B) { b.ReportMetric(float64(d), p99.unit) }
}

func fails(b *testing.B) { fail(b, errors.New("the server | went away")) }

func held(t *testing.T, c contest) outcome {
	t.Helper()
	c.own = []metric{p99}
	return c.hold(t.Context(), 6, time.Millisecond)
}

func TestAContenderThatFailsIsALineOfTheTable(t *testing.T) {
	o := held(t, contest{name: "case", contenders: []contender{{plainName, takes(4)}, {"peer", fails}, {ours, takes(2)}}})
	var text strings.Builder
	o.write(&text)
	for _, want := range []string{
		"| peer | not measured: the server \\| went away |",
		"| pooldriver | 2 ns | 2 ns – 2 ns | 2.00× | 2.00× – 2.00× |",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
}

func TestAContenderThatFailsLateIsNotCompared(t *testing.T) {
	turns := 0
	o := held(t, contest{promises: []promise{better(p99, 1)}, contenders: []contender{{plainName, takes(4)}, {ours, func(b *testing.B) {
		if turns++; turns == 3 {
			fails(b)
		}
		takes(2)(b)
	}}}})
	if got := o.promises[0].judge(o).word; got != unmeasured {
		t.Errorf("judged as %q", got)
	}
	if got := oneLine(o.failed[1]); !strings.HasPrefix(got, "failed in round 3: ") {
		t.Errorf("reported as %q", got)
	}
	if turns != 3 {
		t.Errorf("%d turns after the third had failed", turns)
	}
}

func TestAContestThatCannotBePreparedIsReported(t *testing.T) {
	var text strings.Builder
	held(t, contest{name: "case", prepare: func() (func(), error) { return nil, errors.New("no Docker") }}).write(&text)
	if want := "### case\n\nnot measured: no Docker\n"; !strings.Contains(text.String(), want) {
		t.Errorf("%q is not %q", &text, want)
	}
}

func TestAnInterruptedContestSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := contest{own: []metric{p99}, contenders: []contender{{plainName, takes(1)}}}.hold(ctx, 1, time.Millisecond)
	if !errors.Is(o.missing, context.Canceled) {
		t.Errorf("missing is %v", o.missing)
	}
}

func TestReportShowsEveryChartThatItNames(t *testing.T) {
	o := held(t, contest{section: "Server, proxy + 1 ms", name: "case",
		contenders: []contender{{plainName, takes(4)}, {ours, takes(2)}, {puddleName, fails}}})
	o.on = []place{{chart: o.section + ", p99", group: "4", metric: p99}}
	nothing := held(t, contest{section: "Absent", name: "case", contenders: []contender{{plainName, fails}, {ours, fails}}})
	nothing.on = []place{{chart: "Absent, p99", group: "4", metric: p99}}
	dir := t.TempDir()
	if err := (report{outcomes: []outcome{o, nothing}}).save(dir); err != nil {
		t.Fatal(err)
	}
	const name = "charts/server-proxy-1-ms-p99.svg"
	text, err := os.ReadFile(filepath.Join(dir, tablesFile))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "]("+name+")") {
		t.Errorf("no %s in\n%s", name, text)
	}
	if strings.Contains(string(text), "absent-p99.svg") {
		t.Error("a chart of nothing is named")
	}
	if svg, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(svg), "<svg") {
		t.Errorf("%s: %v", name, err)
	}
}

func TestTheSummaryHoldsTheLastContenderAgainstTheOthers(t *testing.T) {
	var text strings.Builder
	writeSummary(&text, []outcome{
		held(t, contest{name: "case", contenders: []contender{{plainName, takes(4)}, {pgxpoolName, fails}, {ours, takes(2)}}}),
		held(t, contest{name: "absent", prepare: func() (func(), error) { return nil, errors.New("no Docker") }}),
	})
	want := `
|  |  | plain sql.DB | pgxpool | pooldriver | to plain sql.DB | to pgxpool |
|---|---|---:|---:|---:|---:|---:|
| case | p99 wait | 4 ns | not measured | 2 ns | 0.50× (0.50× – 0.50×) | not measured |
`
	if text.String() != want {
		t.Errorf("%s is not %s", &text, want)
	}
}
