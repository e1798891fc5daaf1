package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestTheTableComparesTheCommitsRoundByRound(t *testing.T) {
	turns := func(ours ...float64) (all []measured) {
		for _, ns := range ours {
			all = append(all, measured{Plain: cost{100, 100, 2}, Ours: cost{ns, 130, 3}})
		}
		return all
	}
	var text strings.Builder
	changeTable{
		builds: []build{{commit: "now"}, {commit: "before"}}, rounds: 6,
		rows: []changeRow{
			{title: "exec", most: 1.1, instructions: []float64{900, 1000},
				seen: [][]measured{turns(110, 220, 110, 220, 110, 220), turns(100, 200, 100, 200, 100, 200)}},
			{title: "not counted", most: 1, seen: [][]measured{turns(110), turns(100)}},
			{title: "query", err: errors.New("no | server")},
		},
	}.write(&text)
	for _, want := range []string{
		"now, beside it before;",
		"| exec | 100 ns | 165 ns | 1.650× [1.100× – 2.200×] | ≤ 1.100× | 3 (plain 2) | 900 | 1.500× [1.000× – 2.000×] | 3 (plain 2) | 1000 | 1.100× | 1.100× – 1.100× |",
		"| not counted | 100 ns | 110 ns | 1.100× [1.100× – 1.100×] | **over** ≤ 1.000× | 3 (plain 2) | 1.300× |",
		`| query | not measured: no \| server |`,
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
}

func TestAWorkerAnswersEachTurn(t *testing.T) {
	text, err := json.Marshal(job{Title: sectionNull + ": " + taskRowsName})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := work(t.Context(), string(text), strings.NewReader("4ms\n4ms\n"), &out); err != nil {
		t.Fatal(err)
	}
	answers := json.NewDecoder(strings.NewReader(out.String()))
	for range 2 {
		var m measured
		if err := answers.Decode(&m); err != nil || m.Err != "" || m.Plain.Nanos <= 0 || m.Ours.Nanos <= 0 {
			t.Errorf("%+v, %v", m, err)
		}
	}
	if err := answers.Decode(new(measured)); err != io.EOF {
		t.Errorf("more than two answers: %v", err)
	}
}

func TestEveryCaseOfTheTableIsAContest(t *testing.T) {
	for _, c := range changeCases {
		contest, err := job{Title: c.title}.contest(t.TempDir())
		if err != nil || len(contest.contenders) != 2 {
			t.Errorf("%s: %d contenders, %v", c.title, len(contest.contenders), err)
		}
	}
}

func TestInstructionsAreReadFromPerfOrTheReasonIsTold(t *testing.T) {
	n, err := parsePerf("# started on Thu\n\n123456,,instructions:u,1000,100.00,1.2,insn per cycle\n")
	if n != 123456 || err != nil {
		t.Errorf("%v, %v", n, err)
	}
	if _, err := parsePerf("<not supported>,,instructions:u,0,100.00,,\n"); err == nil || !strings.Contains(err.Error(), "<not supported>") {
		t.Errorf("%v", err)
	}
	t.Setenv("PATH", os.DevNull)
	if _, err := instructions(t.Context(), exec.Command("true")); err == nil {
		t.Error("without perf")
	}
}
