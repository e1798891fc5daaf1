package binding

import (
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/session"
)

func TestTheTimerOfAPipelineEndsWithIt(t *testing.T) {
	p := &pipeline{}
	p.timer = time.AfterFunc(time.Hour, p.rescue)
	p.over.Store(true) // as stop does, while rescue is about to run
	p.timer.Stop()
	p.rescue()
	require.False(t, p.timer.Stop(), "it is not set again")
}

type (
	id     [16]byte
	status string
	nested struct {
		At   time.Time
		Name sql.NullString
		ID   id
	}
)

// The pipeline may read them when the program's call has returned, and the program has changed what they refer to.
func TestOnlyArgumentsThatCanBeCopiedArePipelined(t *testing.T) {
	followOf := func(value any) *follow {
		w := &Want{Statement: session.Statement{Text: "text", Args: []driver.NamedValue{{Ordinal: 1, Value: value}}}}
		return newFollow(w, nil)
	}
	text := "text"
	for _, value := range []any{[]int64{1}, []string{"a"}, &text, map[string]int{}, struct{ p *int }{}, [1][]byte{}, func() {}, sql.Null[[]byte]{}, sql.Out{}} {
		require.Nil(t, followOf(value), "%T", value)
	}
	for value, size := range map[any]int{
		nil: 0, 1: 0, "abc": 3, true: 0, 1.5: 0, time.Now(): 0, id{}: 16, status("abc"): 3, sql.NullString{String: "abc"}: 4,
		nested{Name: sql.NullString{String: strings.Repeat("x", pipelineBytes)}}: pipelineBytes,
	} {
		f := followOf(value)
		require.NotNil(t, f, "%T", value)
		require.Equal(t, value, f.call.Args[0].Value)
		require.GreaterOrEqual(t, f.size, len("text")+size, "%T", value)
	}
	raw := []byte("abc")
	f := followOf(raw)
	raw[0] = 'x'
	require.Equal(t, []byte("abc"), f.call.Args[0].Value)
}

func TestOnlyALastingReasonEndsTheTrials(t *testing.T) {
	p := pipelines{}
	for range 2 * mostTrials {
		p.state.Store(trying)
		p.tried(dialects.ErrNotPipelined)
		require.EqualValues(t, untried, p.state.Load())
	}
	p.tried(nil)
	require.EqualValues(t, work, p.state.Load())
}

func TestTheShareOfAPipeline(t *testing.T) {
	p := pipelines{engine: &Engine{config: &config.Config{Pipeline: 16}}}
	for _, c := range []struct{ waiting, conns, followers int }{
		{0, 4, 0}, {1, 4, 0}, {2, 4, 1}, {7, 4, 3}, {7, 2, 7}, {7, 1, 15}, {100, 4, 15},
	} {
		require.Equal(t, c.followers, p.share(c.waiting, c.conns), "%+v", c)
	}
	p.way.Store(int64(far))
	p.each.Store(int64(far / 8))
	require.Equal(t, 7, p.share(2, 4), "as many as are answered on the way")
}
