package mysql

import (
	"context"
	"database/sql/driver"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPositionsOfMariaDBAreComparedByDomainAndServer(t *testing.T) {
	t.Parallel()
	var d dialect
	for replayed, reached := range map[string]bool{
		"0-1-100,1-1-7":       true,
		"1-1-8,0-1-101,2-5-1": true,
		"0-1-99,1-1-7":        false,
		"0-1-100":             false,
		"0-2-101,1-1-7":       false, // after a failover
		"":                    false,
		"0-1-100,0-1-100":     false,
	} {
		require.Equal(t, reached, d.Reached("0-1-100,1-1-7", replayed), replayed)
	}
	require.True(t, d.SameDatabase("0-1-9", "0-2-8"))
	require.False(t, d.SameDatabase("0-1-9", "1-1-9"))
	require.False(t, d.SameDatabase("0-1-9", "?"))
}

func TestPositionsOfMySQLAreSets(t *testing.T) {
	t.Parallel()
	const a, b = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "864321b4-eb51-11f1-a8df-0242ac110004"
	var d dialect
	for replayed, reached := range map[string]bool{
		a + ":1-5:7":             true,
		a + ":1-7":               true,
		b + ":1-2," + a + ":1-9": true,
		a + ":1-5":               false,
		a + ":1-4:6-8":           false,
		b + ":1-9":               false,
	} {
		require.Equal(t, reached, d.Reached(a+":1-5:7", replayed), replayed)
	}
	require.True(t, d.SameDatabase(a+":1-5", a+":1-3,"+b+":1"), "after a failover that has lost something")
	require.False(t, d.SameDatabase(a+":1-5", b+":1-5"))
	require.False(t, d.SameDatabase("8-1-9", b+":1-5"))
	for _, no := range []string{
		"", "?", "0-1", "0-1-x", "a-1-1", a, a + ":", a + ":5-1", a + ":1-5:4", a + ":1:tag:1", a + ":1," + a + ":2",
		strings.Repeat("0-1-1,", 300),
	} {
		require.False(t, d.Valid(no), no)
	}
}

// silentLater is a replica that falls silent between its position and its lag.
type silentLater struct {
	driver.Conn
	position string
}

func (s silentLater) QueryContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if query == asksLag {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &oneRow{position: s.position}, nil
}

type oneRow struct {
	read     bool
	position string
}

func (*oneRow) Columns() []string { return []string{"position", "read_only"} }

func (*oneRow) Close() error { return nil }

func (r *oneRow) Next(dest []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read = true
	dest[0], dest[1] = []byte(r.position), []byte("1")
	return nil
}

func TestAReplicaIsAskedForItsLagIfItTellsNoPosition(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	state, err := (&session{link: link{conn: silentLater{position: "0-1-100"}}}).Replayed(ctx, true)
	require.NoError(t, err)
	require.Equal(t, "0-1-100", state.Position)
	blind := &session{link: link{conn: silentLater{}}}
	state, err = blind.Replayed(ctx, false)
	require.NoError(t, err)
	require.Empty(t, state.Position)
	_, err = blind.Replayed(ctx, true)
	require.ErrorIs(t, err, context.DeadlineExceeded, "it is silent")
}
