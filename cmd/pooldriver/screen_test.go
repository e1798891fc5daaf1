package main

import (
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/inspect"
	"github.com/pooldriver/pooldriver/pool"
)

func busyPool(now time.Time) inspect.Snapshot {
	p := inspect.Pool{
		Name: "postgres app@db:5432/shop",
		Stats: pooldriver.Stats{
			Pool:       pool.Stats{Max: 4, Count: 4, Active: 3, Lent: 2, Creating: 1, Idle: 1, Waiting: 40},
			DialErrors: 7, DialsFailing: pooldriver.DialsFailing{Failed: 3, For: 2 * time.Second},
		},
		Verdict: inspect.Verdict{Level: "bad", Sentence: "40 statements wait. 2 of 4 connections are in use, and one of them runs no statement: look at what the whole advice says."},
		Holders: []pooldriver.Holder{
			{Conn: 1, Running: true, Since: now.Add(-time.Minute), Label: "GET /report", Pin: pooldriver.PinTransaction},
			{Conn: 2, Idle: 5 * time.Second, Since: now.Add(-6 * time.Second), Label: "POST /orders of a very long name", Pin: pooldriver.PinTransaction,
				ProcessID: 4711, Statement: "SELECT ?", TakenAt: []pooldriver.Frame{{Func: "main.order", File: "/src/order.go", Line: 12}}},
		},
	}
	for i := range 40 {
		p.Waiters = append(p.Waiters, pooldriver.Waiter{Position: i + 1, Since: now.Add(-time.Second), Deadline: now.Add(time.Second)})
	}
	return inspect.Snapshot{At: now, Pools: []inspect.Pool{p}}
}

func screenOf(s inspect.Snapshot, width, height int) string {
	text, _ := render(s, width, height, 0)
	return text
}

func TestAScreenIsFilledAndNotLeft(t *testing.T) {
	lines := strings.Split(screenOf(busyPool(time.Now()), 80, 24), endLine)
	require.Len(t, lines, 24)
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\x1b[K")), 80, line)
	}
	require.Contains(t, lines[0], "postgres app@db:5432/shop")
	require.Equal(t, "40 statements wait. 2 of 4 connections are in use, and one of them runs no\x1b[K", lines[1]+"\x1b[K")
	require.Equal(t, "statement: look at what the whole advice says.", lines[2])
	require.Contains(t, lines[3], "in use 2 of 4   in the pool 1   waiting 40")
	require.Contains(t, lines[4], "failed dials 7   no connection in 1m: 0   the last 3 for 2s")
	require.Contains(t, lines[5], "[#!~-]")
	require.Regexp(t, `^POST /orders of…\s+5s\s+6s transaction\s+4711\s+order.go:12 SELECT \?`, lines[8], "what is held for nothing comes first")
	require.Contains(t, lines[23], "lines 1 to 23 of 53: the arrow keys")
}

func TestPaperShowsEverything(t *testing.T) {
	text := screenOf(busyPool(time.Now()), 120, 0)
	require.NotContains(t, text, "\x1b")
	require.Equal(t, 40, strings.Count(text, "\n-"), "every waiter")
	require.Contains(t, screenOf(inspect.Snapshot{}, 80, 24), "no pool")
}

// TestTheScreenHasTheLastMinuteAndSums: and the verdict before this one.
func TestTheScreenHasTheLastMinuteAndSums(t *testing.T) {
	now := time.Now()
	s := busyPool(now)
	p := &s.Pools[0]
	p.Earlier = &inspect.Earlier{Verdict: inspect.Verdict{Level: "bad", Sentence: "All fail."}, Ago: 7 * time.Second}
	p.Lines = []inspect.Point{{At: now.Add(-30 * time.Second), InUse: 1}, {At: now, InUse: 2, Waiting: 40}}
	p.Labels = []inspect.LabelUse{{Label: "GET /report", Holds: 2, LongestHold: 5 * time.Second, Waiting: 3, LongestWait: time.Second, Statement: "SELECT sales"}}
	text := screenOf(s, 120, 0)
	require.Contains(t, text, "\n(7s ago: All fail.)\n")
	require.Regexp(t, `last minute: in use ▁+▄▁+█  waiting ▁+█`, text)
	require.Regexp(t, `GET /report\s+2 of 2\s+5s\s+3\s+1s SELECT sales`, text)
}

func TestTheScreenShowsWhoIsInPipelines(t *testing.T) {
	now := time.Now()
	s := busyPool(now)
	require.NotContains(t, screenOf(s, 120, 0), "pipelined")
	p := &s.Pools[0]
	p.Stats.Pipelined, p.Recent.Pipelined, p.Recent.Acquired = 1200, 12, 100
	p.Holders[1].Following = 5
	p.Waiters = append(p.Waiters, pooldriver.Waiter{Follows: true, Label: "GET /stock", Since: now})
	text := screenOf(s, 120, 0)
	require.Contains(t, text, "no connection in 1m: 0   pipelined 12 of 100")
	require.Contains(t, text, "order.go:12 [5 follow] SELECT ?")
	require.Regexp(t, `GET /stock +0s +follows`, text)
}

func TestALabelMovesNoCursor(t *testing.T) {
	now := time.Now()
	s := busyPool(now)
	s.Pools[0].Holders[0].Label = "a\x1b[2J\nb"
	for _, height := range []int{0, 50} {
		require.Contains(t, screenOf(s, 120, height), "a·[2J·b")
	}
}

func TestClip(t *testing.T) {
	require.Equal(t, "größe", clip("größe", 5))
	require.Equal(t, "grö…", clip("größe", 4))
	require.Empty(t, clip("x", 0))
}

func TestKeysMoveTheScreen(t *testing.T) {
	const up, down, pageUp, pageDown = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~"
	for keys, want := range map[string]int{
		"": 0, "jjk": 1, down + down + up: 1, "\x1bOB\x1bOB\x1bOA": 1, pageDown: 23, " " + pageUp + "jq" + "jjj": 1, "kkkj": 1, "x\x1b[Zyj": 1, "j\x03j": 1,
	} {
		for _, chunk := range []int{1, 2, 100} { // what one key sends may come in parts
			line, ended := 0, 0
			readKeys(&chunks{keys, chunk}, func(m move) { line = m.from(line, 24) }, func() { ended++ })
			require.Equal(t, []int{want, 1}, []int{line, ended}, "%q in parts of %d", keys, chunk)
		}
	}
}

// chunks is a reader of a text in parts.
type chunks struct {
	text string
	n    int
}

func (c *chunks) Read(to []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := copy(to, c.text[:min(c.n, len(c.text))])
	c.text = c.text[n:]
	return n, nil
}

// TestTheScreenMovesAndStaysWithinTheLines: the last line always says where it is.
func TestTheScreenMovesAndStaysWithinTheLines(t *testing.T) {
	now := time.Now()
	s := busyPool(now)
	s.Pools[0].Waiters[39].Label = "eldest"
	require.NotContains(t, screenOf(s, 80, 24), "eldest ")
	text, at := render(s, 80, 24, 5)
	require.Equal(t, 5, at)
	require.True(t, strings.HasPrefix(text, "[#!~-]"))
	require.Contains(t, text, "lines 6 to 28 of 53")
	text, at = render(s, 80, 24, farthest)
	require.Equal(t, 30, at)
	require.Contains(t, text, "eldest ")
	require.Len(t, strings.Split(text, endLine), 24)
	_, at = render(s, 80, 200, 7)
	require.Zero(t, at, "all lines fit")
}

func TestTheScreenNamesReplicasListenerAndRefusals(t *testing.T) {
	now := time.Now()
	s := busyPool(now)
	require.NotContains(t, screenOf(s, 120, 0), "BESIDE THE POOL")
	p := &s.Pools[0]
	p.Recent.Failed = map[pooldriver.AcquireFailure]uint64{pooldriver.AcquireOverloaded: 840, pooldriver.AcquireCancelled: 5}
	p.Stats.Replica = pooldriver.ReplicaStats{
		Reads: map[pooldriver.ReplicaRead]uint64{pooldriver.ReplicaDead: 3},
		Pools: []pooldriver.ReplicaPool{{Host: "db2:5432", State: pooldriver.ReplicaDead, Since: now.Add(-time.Minute), Lag: -1,
			Failing: pooldriver.DialsFailing{Failed: 2, Error: "dialling db2: connection refused"}}},
	}
	p.Stats.Listen = pooldriver.ListenStats{State: pooldriver.ListenListening, Listeners: 1, Channels: 2, Since: now.Add(-time.Hour)}
	text := screenOf(s, 160, 0)
	require.Regexp(t, `replica db2:5432 +! dead +1m0s 0 of 0 +0 +connection refused`, text)
	require.Regexp(t, `listener +listening +1h0m0s +0 +2 channels`, text)
	require.Contains(t, text, "reads for replicas: dead 3")
	require.Contains(t, text, "no connection in 1m: overloaded 840   the last 3")
}

func TestAnEndlessPageHasAllFigures(t *testing.T) {
	s := busyPool(time.Now())
	s.Pools[0].Stats.AcquireFailures = map[pooldriver.AcquireFailure]uint64{pooldriver.AcquireGaveUp: 17, pooldriver.AcquireTimeout: 0}
	require.Regexp(t, `(?m)^acquire_failures_total gave_up +17$`, screenOf(s, 200, 0))
	require.NotContains(t, screenOf(s, 200, 0), "acquire_failures_total timeout")
	require.NotContains(t, screenOf(s, 200, 40), "FIGURES")
}
