package binding

import (
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/session"
)

func TestTheTimerOfATripEndsWithIt(t *testing.T) {
	trip := &trip{}
	trip.timer = time.AfterFunc(time.Hour, trip.rescue)
	trip.over.Store(true) // as travel does, while rescue is about to run
	trip.timer.Stop()
	trip.rescue()
	require.False(t, trip.timer.Stop(), "it is not set again")
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

// The trip may read them when the program's call has returned, and the program has changed what they refer to.
func TestOnlyArgumentsThatCanBeCopiedTravel(t *testing.T) {
	travels := func(value any) *follow {
		w := &Want{Statement: session.Statement{Text: "text", Args: []driver.NamedValue{{Ordinal: 1, Value: value}}}}
		return newFollow(w, nil)
	}
	text := "text"
	for _, value := range []any{[]int64{1}, []string{"a"}, &text, map[string]int{}, struct{ p *int }{}, [1][]byte{}, func() {}, sql.Null[[]byte]{}, sql.Out{}} {
		require.Nil(t, travels(value), "%T", value)
	}
	for value, size := range map[any]int{
		nil: 0, 1: 0, "abc": 3, true: 0, 1.5: 0, time.Now(): 0, id{}: 16, status("abc"): 3, sql.NullString{String: "abc"}: 4,
		nested{Name: sql.NullString{String: strings.Repeat("x", pipelineBytes)}}: pipelineBytes,
	} {
		f := travels(value)
		require.NotNil(t, f, "%T", value)
		require.Equal(t, value, f.call.Args[0].Value)
		require.GreaterOrEqual(t, f.size, len("text")+size, "%T", value)
	}
	raw := []byte("abc")
	f := travels(raw)
	raw[0] = 'x'
	require.Equal(t, []byte("abc"), f.call.Args[0].Value)
}
