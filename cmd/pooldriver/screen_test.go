package main

import (
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

func TestAScreenIsFilledAndNotLeft(t *testing.T) {
	lines := strings.Split(render(busyPool(time.Now()), 80, 24), endLine)
	require.Len(t, lines, 24)
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\x1b[K")), 80, line)
	}
	require.Contains(t, lines[0], "postgres app@db:5432/shop")
	require.Equal(t, "40 statements wait. 2 of 4 connections are in use, and one of them runs no\x1b[K", lines[1]+"\x1b[K")
	require.Equal(t, "statement: look at what the whole advice says.", lines[2])
	require.Contains(t, lines[3], "in use 2 of 4   in the pool 1   waiting 40")
	require.Contains(t, lines[4], "failed dials 7   timeouts 0   the last 3 for 2s")
	require.Contains(t, lines[5], "[#!~-]")
	require.Regexp(t, `^POST /orders of…\s+5s\s+6s transaction\s+4711\s+order.go:12 SELECT \?`, lines[8], "what is held for nothing comes first")
	require.Contains(t, lines[23], "more lines in a higher terminal")
}

func TestPaperShowsEverything(t *testing.T) {
	text := render(busyPool(time.Now()), 120, 0)
	require.NotContains(t, text, "\x1b")
	require.Equal(t, 40, strings.Count(text, "\n-"), "every waiter")
	require.Contains(t, render(inspect.Snapshot{}, 80, 24), "no pool")
}

// TestTheScreenHasTheLastMinuteAndSums: and the verdict before this one.
func TestTheScreenHasTheLastMinuteAndSums(t *testing.T) {
	now := time.Now()
	s := busyPool(now)
	p := &s.Pools[0]
	p.Earlier = &inspect.Earlier{Verdict: inspect.Verdict{Level: "bad", Sentence: "All fail."}, Ago: 7 * time.Second}
	p.Lines = []inspect.Point{{At: now.Add(-30 * time.Second), InUse: 1}, {At: now, InUse: 2, Waiting: 40}}
	p.Labels = []inspect.LabelUse{{Label: "GET /report", Holds: 2, LongestHold: 5 * time.Second, Waiting: 3, LongestWait: time.Second, Statement: "SELECT sales"}}
	text := render(s, 120, 0)
	require.Contains(t, text, "\n(7s ago: All fail.)\n")
	require.Regexp(t, `last minute: in use ▁+▄▁+█  waiting ▁+█`, text)
	require.Regexp(t, `GET /report\s+2 of 2\s+5s\s+3\s+1s SELECT sales`, text)
}

func TestTheScreenShowsWhoIsInPipelines(t *testing.T) {
	now := time.Now()
	s := busyPool(now)
	require.NotContains(t, render(s, 120, 0), "pipelined")
	p := &s.Pools[0]
	p.Stats.Pipelined, p.Recent.Pipelined, p.Recent.Acquired = 1200, 12, 100
	p.Holders[1].Following = 5
	p.Waiters = append(p.Waiters, pooldriver.Waiter{Follows: true, Label: "GET /stock", Since: now})
	text := render(s, 120, 0)
	require.Contains(t, text, "timeouts 0   pipelined 12 of 100")
	require.Contains(t, text, "order.go:12 [5 follow] SELECT ?")
	require.Regexp(t, `GET /stock +0s +follows`, text)
}

func TestALabelMovesNoCursor(t *testing.T) {
	now := time.Now()
	s := busyPool(now)
	s.Pools[0].Holders[0].Label = "a\x1b[2J\nb"
	for _, height := range []int{0, 50} {
		require.Contains(t, render(s, 120, height), "a·[2J·b")
	}
}

func TestClip(t *testing.T) {
	require.Equal(t, "größe", clip("größe", 5))
	require.Equal(t, "grö…", clip("größe", 4))
	require.Empty(t, clip("x", 0))
}

func TestTheKeyQEndsTheScreen(t *testing.T) {
	for _, keys := range []string{"q", "xyq", "\x03", ""} {
		ended := 0
		endOn(strings.NewReader(keys), func() { ended++ })
		require.Equal(t, 1, ended)
	}
}

func TestAScreenSaysHowManyConnectionsAreEnough(t *testing.T) {
	s := busyPool(time.Now())
	require.NotContains(t, render(s, 200, 0), "needed")
	s.Pools[0].Stats.Enough = pooldriver.WhatIf{Conns: 3, Needed: 4, For: time.Minute, WaitP99: 1500 * time.Microsecond}
	require.Contains(t, render(s, 200, 0), "In the last 1m0s 4 connections were needed at most: with 3 the p99 of the wait would have been 1.5ms.")
}
