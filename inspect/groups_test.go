package inspect

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

func TestWaitersAreGroupedByLabel(t *testing.T) {
	at := time.Now()
	waiters := []pooldriver.Waiter{
		{Position: 1, Label: "a", Since: at},
		{Position: 2, Label: "b", Since: at, Deadline: at.Add(time.Minute), Holds: []uint64{4}},
		{Position: 3, Label: "b", Since: at.Add(time.Second), Deadline: at.Add(time.Second), Holds: []uint64{4, 5}},
	}
	require.Equal(t, []group{
		{Label: "b", Count: 2, First: 2, Since: at, Deadline: at.Add(time.Second), Holds: []uint64{4, 5}, Waiters: waiters[1:]},
		{Label: "a", Count: 1, First: 1, Since: at, Waiters: waiters[:1]},
	}, groupsOf(waiters))
}

// manyHolders are 200 connections: of a label, of a line of code, and one more.
func manyHolders(now time.Time) (holders []pooldriver.Holder) {
	at := []pooldriver.Frame{{Func: "main.list", File: "/src/list.go", Line: 12}}
	for i := range 150 {
		holders = append(holders, pooldriver.Holder{Conn: uint64(i), Label: "GET /report", Running: true, RunningFor: 3 * time.Second, Since: now.Add(-time.Duration(i) * time.Second)})
	}
	for i := range 49 {
		holders = append(holders, pooldriver.Holder{Conn: uint64(200 + i), TakenAt: at, Idle: time.Duration(i) * time.Second, Since: now.Add(-time.Minute)})
	}
	return append(holders, pooldriver.Holder{Conn: 999, Label: "POST /orders", Idle: time.Hour, Since: now.Add(-time.Hour)})
}

// rowsOf are the texts of a table's rows that are shown before anything is opened.
func rowsOf(text, table string) (rows []string) {
	text = text[strings.Index(text, `<table class="`+table+`">`):]
	text = text[strings.Index(text, "</thead>"):strings.Index(text, "</table>")]
	for _, row := range regexp.MustCompile(`(?s)<tr class="([^"]*)".*?</tr>`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(row[1], "member") {
			rows = append(rows, strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(row[0], " ")), " "))
		}
	}
	return rows
}

// TestManyRowsAreOneForEachLabelOrLineOfCode: with their number and the longest of them.
func TestManyRowsAreOneForEachLabelOrLineOfCode(t *testing.T) {
	now := time.Now()
	p := Pool{Stats: stats(200, 200, 40), Holders: manyHolders(now)}
	for i := range 40 {
		p.Waiters = append(p.Waiters, pooldriver.Waiter{Position: i + 1, Label: "GET /cart", Since: now.Add(-time.Minute)})
	}
	text := rendered(t, p)
	rows := rowsOf(text, "holders")
	require.Len(t, rows, 3)
	require.Regexp(t, `^POST /orders 1h0m0s 1h0m0s`, rows[0], "the one that is idle for longest is alone")
	require.Equal(t, "main.list (list.go:12) 48s at most 1m0s at most 49 connections, 0 run a statement", rows[1])
	require.Regexp(t, `^GET /report runs for 3s at most 2m29s at most 150 connections, 150 run a statement; opened it shows 50 of them$`, rows[2])
	require.Equal(t, []string{"GET /cart 40 1 1m0s never"}, rowsOf(text, "waiters"))
	require.Equal(t, 40, strings.Count(text[strings.Index(text, `class="waiters"`):], `<tr class="member"`))
	ids := regexp.MustCompile(` id="((?:held|waits)-[^"]*)"`)
	first := ids.FindAllString(text, -1)
	require.Len(t, first, 3)
	p.Waiters, p.Holders = p.Waiters[1:], p.Holders[1:]
	require.Equal(t, first, ids.FindAllString(rendered(t, p), -1), "what is opened is found again")

	p.Holders = manyHolders(now)[:crowd]
	require.Len(t, rowsOf(rendered(t, p), "holders"), crowd, "a few are shown one by one")
}

func TestTheListenerIsARow(t *testing.T) {
	s := stats(1, 4, 0)
	require.NotContains(t, rendered(t, Pool{Stats: s}), "Beside the pool")
	s.Listen = pooldriver.ListenStats{
		State: pooldriver.ListenConnecting, Since: time.Now().Add(-time.Minute), Channels: 2, Listeners: 3, Received: 70, Gaps: 4, Dropped: 5,
		Failing: pooldriver.DialsFailing{Failed: 7, For: time.Minute, Ago: time.Second, Error: "pooldriver: dialling db:5432: dial tcp 10.0.0.7:5432: connect: connection refused"},
	}
	text := rendered(t, Pool{Stats: s, Listens: &pooldriver.Holder{ProcessID: 4711, Statement: "LISTEN a, b"}})
	require.Contains(t, text, `<tr class="ill">`)
	require.Contains(t, text, `title="pooldriver: dialling db:5432`, "at length, where the mouse is")
	require.Equal(t, []string{"listener connecting 1m0s connection refused process 4711 2 channels, 70 notifications, 4 gaps, 5 dropped LISTEN a, b"}, rowsOf(text, "others"))
}

func TestEachReplicaIsARow(t *testing.T) {
	s := stats(1, 4, 0)
	s.Replica = pooldriver.ReplicaStats{
		Reads: map[pooldriver.ReplicaRead]uint64{pooldriver.ReplicaServed: 70, pooldriver.ReplicaNone: 3, pooldriver.ReplicaLate: 0},
		Pools: []pooldriver.ReplicaPool{
			{Host: "db2:5432", State: pooldriver.ReplicaServed, Lag: 20 * time.Millisecond, Since: time.Now().Add(-time.Hour)},
			{Host: "db3:5432", State: pooldriver.ReplicaNone, Lag: -1, Failing: pooldriver.DialsFailing{Failed: 1, Cause: pooldriver.DialLoginRefused, Error: "no such role"}},
		},
	}
	p := &s.Replica.Pools[0].Pool
	p.Lent, p.Max, p.Waiting, p.Acquires = 2, 7, 5, 70
	text := rendered(t, Pool{Stats: s, ReplicaHolders: []pooldriver.Holder{{Host: "db2:5432", Statement: "SELECT report"}}})
	text = strings.ReplaceAll(text, "<tr>", `<tr class="">`)
	require.Equal(t, []string{"replica db2:5432 serves 1h0m0s 2 of 7 5 20ms lent 70 times", "replica db3:5432 no standby login refused 0 of 0 lent 0 times"}, rowsOf(text, "others"))
	require.Contains(t, text, "Reads for replicas: no standby 3, served 70")
	require.Contains(t, text, "<code>SELECT report</code>")
}

// TestWhatIsOpenedIsFoundAgain: its id says what it is, and not where.
func TestWhatIsOpenedIsFoundAgain(t *testing.T) {
	sites := make([]pooldriver.CallSite, 2)
	rows := make([]pooldriver.BufferedRows, 2)
	for i := range 2 {
		frames := []pooldriver.Frame{{Func: fmt.Sprint("f", i), Line: i}}
		sites[i].Stack, rows[i].TakenAt, rows[i].Since = frames, frames, time.Unix(int64(i), 0)
	}
	ids := regexp.MustCompile(` id="((?:site|rows)-[^"]*)"`)
	both := ids.FindAllString(rendered(t, Pool{CallSites: sites, BufferedRows: rows}), -1)
	require.Len(t, both, 4)
	require.NotEqual(t, both[2], both[3])
	second := ids.FindAllString(rendered(t, Pool{CallSites: sites[1:], BufferedRows: rows[1:]}), -1)
	require.Equal(t, []string{both[1], both[3]}, second)
}
