package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestChartsShowWhatTheTablesSay: those in results are drawn from the tables beside them, by "-redraw".
func TestChartsShowWhatTheTablesSay(t *testing.T) {
	t.Setenv("POOLDRIVER_MYSQL_IMAGE", "none is started")
	for _, of := range []string{"results", "results/pipelines"} {
		dir := t.TempDir()
		for _, name := range []string{tablesFile, overloadFile} {
			text, err := os.ReadFile(filepath.Join(of, name))
			if os.IsNotExist(err) && name == overloadFile {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := redrawCharts(dir, time.Second); err != nil {
			t.Fatal(err)
		}
		drawn, err := filepath.Glob(filepath.Join(dir, chartDir, "*.svg"))
		if err != nil || len(drawn) == 0 {
			t.Fatal("no charts", err)
		}
		kept, _ := filepath.Glob(filepath.Join(of, chartDir, "*.svg"))
		if len(kept) != len(drawn) {
			t.Errorf("%s has %d charts, and its tables give %d", of, len(kept), len(drawn))
		}
		for _, file := range drawn {
			want, _ := os.ReadFile(file)
			got, err := os.ReadFile(filepath.Join(of, chartDir, filepath.Base(file)))
			if err != nil || string(got) != string(want) {
				t.Errorf("%s/%s does not show what the tables say: %v", of, filepath.Base(file), err)
			}
		}
	}
}

// TestTheChartOfTheREADMEHasEachContender where we are faster, and where we are not.
func TestTheChartOfTheREADMEHasEachContender(t *testing.T) {
	read, err := readTables("results/pipelines/" + tablesFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range charts(pipelineContests(postgresServer(false), time.Second)) {
		if c.title != heroChart {
			continue
		}
		p := c.picture(read)
		if len(p.panels) != 3 {
			t.Fatalf("%d panels", len(p.panels))
		}
		for _, panel := range p.panels {
			if len(panel.bars) != 4 {
				t.Errorf("%s has %d contenders", panel.title, len(panel.bars))
			}
		}
		if one := p.panels[2].bars; one[0].text != "13,351" || one[2].value > one[0].value {
			t.Errorf("one goroutine: %v", one)
		}
		return
	}
	t.Error("no such chart")
}

func TestACellOfAMetricIsNotThatOfTheNext(t *testing.T) {
	of := table{columns: []string{"", "p50 wait", "p99 wait", "quartiles"}}
	line := []string{"peer", "1 ns", "2 ns", "1 ns – 3 ns"}
	if got := of.cell(line, "p50 wait", "quartiles"); got != "" {
		t.Errorf("p50 has the quartiles %s", got)
	}
	if got := of.cell(line, "p99 wait", "quartiles"); got != "1 ns – 3 ns" {
		t.Errorf("p99 has the quartiles %s", got)
	}
}
