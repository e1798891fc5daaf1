package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/observe/usage"
)

func newReport(to Listener) (*Report, *bytes.Buffer) {
	log := &bytes.Buffer{}
	r := &Report{}
	r.Init(slog.New(slog.NewTextHandler(log, nil)), "db at host", 1, to)
	return r, log
}

func TestEachLineOfTheLogNamesTheTarget(t *testing.T) {
	t.Parallel()
	r, log := newReport(Listener{})
	why := errors.New("no")
	for _, event := range []func(){
		func() { r.DialsEnded(why) },
		func() { r.ServerFull(3, why) },
		func() { r.OtherServer("b", "a", "") },
		func() { r.RoleChanged(true, "a", why) },
		func() { r.NoCredential(why) },
		func() { r.TaskOutlasted("task 1") },
		func() { r.TaskEndedInRaw("task 1") },
		func() { r.TaskEndedOpen("for 1s", "task", "task 1") },
		func() { r.BackOpen() },
		func() { r.CannotClean(why) },
		func() { r.HookRefused(why) },
		func() { r.DriverPanicked("in a test", 1) },
		func() { r.JoinedTx("task 1", "for 1s") },
		func() { r.StateShared(Who{Task: "task 1"}, "SET a = 1", func() string { return "here" }) },
		func() { r.StateLost("SET a = 1") },
		func() { r.Slow(SlowQuery{Statement: "SELECT 1", Rows: -1}) },
		r.ValidatorHidden,
		func() { r.Leak("close its rows", "held", "1s") },
		func() { r.DrainWaits("a listener", "let it return") },
	} {
		log.Reset()
		event()
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), `msg="pooldriver: `)
		require.Contains(t, log.String(), `target="db at host"`)
	}
}

func TestWhatHappensOftenIsToldNowAndThen(t *testing.T) {
	t.Parallel()
	r, log := newReport(Listener{})
	for range 100 {
		r.BackOpen()
		r.StateLost("SET a = 1")
	}
	require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
	require.Equal(t, uint64(100), r.StateDropped.Load())
}

// TestSlowStatementsAreToldByTheirTexts: each now and then, and the last ones share a line.
func TestSlowStatementsAreToldByTheirTexts(t *testing.T) {
	t.Parallel()
	r, log := newReport(Listener{})
	for n := range slowTexts + 50 {
		for range 3 {
			r.Slow(SlowQuery{Statement: fmt.Sprintf("SELECT a%d", n), Label: "GET /", Waited: time.Millisecond, Took: time.Second, Idle: time.Millisecond, Rows: 3})
		}
	}
	require.Equal(t, slowTexts+1, strings.Count(log.String(), "\n"))
	first, _, _ := strings.Cut(log.String(), "\n")
	require.Contains(t, first, `statement="SELECT a0" label="GET /" wait=1ms took=1s rows=3 not_read_for=1ms`)
	log.Reset()
	r.Slow(SlowQuery{Statement: "SELECT a0"})
	require.Empty(t, log.String())
}

func TestAListenerThatPanicsIsToldToTheLog(t *testing.T) {
	t.Parallel()
	var all []func()
	oops := func() { panic("s3cr3t") }
	r, log := newReport(Listener{
		Dialled:   func(string, time.Duration, error) { oops() },
		Acquired:  func(context.Context, time.Duration, Who, bool, error) { oops() },
		Released:  func(usage.Use, Who, string) { oops() },
		Reset:     func(time.Duration, bool, bool, error) { oops() },
		Closed:    func(Reason, time.Duration, string) { oops() },
		TaskEnded: func(Who, time.Duration, bool) { oops() },
	})
	who := Who{Task: "task 7", Label: "report"}
	all = append(all,
		func() { r.Dialled("", 0, nil) },
		func() { r.Acquired(t.Context(), 0, who, func() { t.Error("it has not ended the goroutine") }) },
		func() { r.NotAcquired(t.Context(), time.Second, func() Who { return who }, context.Canceled) },
		func() { r.Released(usage.Use{}, who, "") },
		func() { r.Reset(0, true, false, nil) },
		func() { r.Closing(Lost, 0, "") },
		func() { r.TaskEnded(func() Who { return who }, time.Now(), false) },
	)
	named := 0
	for _, event := range all {
		log.Reset()
		require.NotPanics(t, event)
		if strings.Contains(log.String(), `label=report task="task 7"`) {
			named++
		}
		require.Contains(t, log.String(), "a function of the program panicked")
		require.Contains(t, log.String(), "function=Config.Observer.")
		require.NotContains(t, strings.Split(log.String(), "stack=")[0], "s3cr3t", "only its type")
	}
	require.Equal(t, 4, named, "the others are for nobody")
	require.Equal(t, uint64(1), r.Counters.Closed[Lost].Load())
	require.Equal(t, uint64(1), r.Connect.Snapshot().Count)
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	r, log := newReport(Listener{})
	require.False(t, r.HearsAcquired())
	require.False(t, r.HearsReleased())
	r.Dialled("", time.Second, nil)
	r.NotAcquired(t.Context(), 0, nil, context.Canceled)
	r.Closing(Uncleanable, 0, "")
	r.TaskEnded(nil, time.Time{}, false)
	r.AcquireFailed(Deadlock)
	require.Empty(t, log.String())
	require.Equal(t, uint64(1), r.AcquireFailures[Deadlock].Load())
}
