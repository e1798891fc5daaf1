package mysql

import (
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/testing/rowstest"
)

// If this fails the driver may have come to keep the bytes of a row: see
// dialects.Traits.BytesKept.
func TestTheDriverReusesTheMemoryOfARow(t *testing.T) {
	var rows [][]any
	for i := range 100 { // more than the driver reads at once
		text := strings.Repeat(string(rune('a'+i%26)), 100+i)
		rows = append(rows, []any{text, text})
	}
	p := newPeer(t)
	tmpl := p.template(t, "")
	s := p.dial(t, tmpl)
	p.answers(func(*peerSession, string) reply { return reply{rows: rows} })
	query := func() driver.Rows {
		rows, err := s.conn.(driver.QueryerContext).QueryContext(t.Context(), "SELECT", nil)
		require.NoError(t, err)
		return rows
	}
	slices, changed := rowstest.Changed(t, query(), func() { require.NoError(t, query().Close()) })
	require.Equal(t, 200, slices)
	require.Positive(t, changed)
	require.False(t, tmpl.Traits().BytesKept)
}
