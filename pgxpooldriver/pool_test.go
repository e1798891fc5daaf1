package pgxpooldriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/internal/direct"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

func TestAConnectorThatIsNotForPostgreSQLIsAnErrorOfEveryCall(t *testing.T) {
	t.Parallel()
	other := pooldriver.Wrap(stubdialect.Connector(stubdialect.New(dialects.Traits{})))
	for _, connector := range []*pooldriver.Connector{nil, pooldriver.New("nonsense://"), other} {
		p, ctx := New(connector), t.Context()
		_, err := p.Exec(ctx, "SELECT 1")
		require.Error(t, err)
		rows, err := p.Query(ctx, "SELECT 1")
		require.Error(t, err)
		require.False(t, rows.Next())
		require.Equal(t, err, rows.Err())
		require.Error(t, p.QueryRow(ctx, "SELECT 1").Scan(new(int)))
		_, err = p.Begin(ctx)
		require.Error(t, err)
		_, err = p.CopyFrom(ctx, pgx.Identifier{"t"}, nil, nil)
		require.Error(t, err)
		require.Error(t, p.AcquireFunc(ctx, func(*Conn) error { return nil }))
		require.Error(t, p.SendBatch(ctx, &pgx.Batch{}).Close())
		require.Error(t, p.Ping(ctx))
		p.Reset()
		p.Close()
	}
	p := New(pooldriver.New("postgres://nobody@localhost/x?pool_max_conns=7"))
	require.NoError(t, p.fault)
	require.EqualValues(t, 7, p.Stat().MaxConns())
	p.Close()
	require.ErrorIs(t, p.Ping(t.Context()), pooldriver.ErrClosed)
}

type hidden struct{}

func (hidden) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	panic("only pgx calls it, with the connection")
}

func TestTheTextThatIsSentIsTheOneThatIsClassified(t *testing.T) {
	t.Parallel()
	text, args, effect, err := rewrite(t.Context(), "SELECT @a", []any{pgx.QueryExecModeExec, pgx.NamedArgs{"a": 1}})
	require.NoError(t, err)
	require.Equal(t, "SELECT $1", text)
	require.Equal(t, []any{pgx.QueryExecModeExec, 1}, args)
	require.Zero(t, effect)
	_, _, _, err = rewrite(t.Context(), "SELECT @a", []any{pgx.StrictNamedArgs{}})
	require.Error(t, err)
	text, args, effect, err = rewrite(t.Context(), "SELECT 1", []any{hidden{}, 1})
	require.NoError(t, err)
	require.Equal(t, "SELECT 1", text)
	require.Len(t, args, 2)
	require.Equal(t, direct.Anything, effect)
}

// TestTheContextOfATransactionIsThatOfTheCall: also for package context, which looks for the cause and for whom to tell.
func TestTheContextOfATransactionIsThatOfTheCall(t *testing.T) {
	t.Parallel()
	type key struct{}
	cause := errors.New("end")
	begin, endBegin := context.WithCancel(context.WithValue(t.Context(), key{}, "begin"))
	end, endEnd := context.WithCancelCause(t.Context())
	var l lifetime
	l.start(begin)
	lasting, cancel := context.WithCancel(&l)
	defer cancel()
	endBegin()
	require.Nil(t, l.Done())
	require.NoError(t, l.Err())
	require.NoError(t, context.Cause(&l))
	require.Equal(t, "begin", l.Value(key{}))
	l.finish(end)
	inside, cancel := context.WithCancel(&l)
	defer cancel()
	endEnd(cause)
	<-inside.Done()
	require.ErrorIs(t, l.Err(), context.Canceled)
	require.Equal(t, cause, context.Cause(&l))
	require.Equal(t, cause, context.Cause(inside))
	require.NoError(t, lasting.Err())
}

func TestARowThatIsHeldKeepsNullAndEmptyApart(t *testing.T) {
	t.Parallel()
	source := [][]byte{[]byte("a"), nil, {}, []byte("bc")}
	for _, row := range [][][]byte{cloned(source), cloned([][]byte{nil, {}})} {
		for _, v := range row {
			_ = append(v, 'x') // does not reach the next value
		}
	}
	row := cloned(source)
	source[0][0] = 'z'
	require.Equal(t, [][]byte{[]byte("a"), nil, {}, []byte("bc")}, row)
	require.NotNil(t, row[2])
}

func TestEnumsAreReadByCodecsOfTheirOwn(t *testing.T) {
	t.Parallel()
	enum := &pgtype.Type{Name: "e", OID: 20000, Codec: &pgtype.EnumCodec{}}
	array := &pgtype.Type{Name: "_e", OID: 20001, Codec: &pgtype.ArrayCodec{ElementType: enum}}
	other := &pgtype.Type{Name: "d", OID: 20002, Codec: pgtype.TextCodec{}}
	require.NotSame(t, enum.Codec, ownEnums(enum).Codec)
	require.NotSame(t, enum, ownEnums(array).Codec.(*pgtype.ArrayCodec).ElementType)
	require.Same(t, other, ownEnums(other))
}

// results are those of a batch of one query.
type results struct {
	pgx.BatchResults
	rows pgx.Rows
}

func (r results) Query() (pgx.Rows, error) { return r.rows, nil }

// columns are rows that have columns, and no row.
type columns struct {
	pgx.Rows
	fields []pgconn.FieldDescription
}

func (c columns) FieldDescriptions() []pgconn.FieldDescription { return c.fields }
func (columns) Next() bool                                     { return false }
func (columns) CommandTag() pgconn.CommandTag                  { return pgconn.CommandTag{} }
func (columns) Err() error                                     { return nil }

// shared are rows of a session that somebody else uses after each Next, so that pgx uses the memory of the columns again.
type shared struct {
	driver.Rows
	fields []pgconn.FieldDescription
}

func (s shared) Next(dest []driver.Value) error {
	defer clear(s.fields)
	return s.Rows.Next(dest)
}

func TestTheColumnsOfABatchAreHeld(t *testing.T) {
	t.Parallel()
	fields := []pgconn.FieldDescription{{Name: "a", DataTypeOID: pgtype.Int4OID}}
	b := batch{stream: stream{link: new(link)}, queries: make([]*pgx.QueuedQuery, 1)}
	b.source = batchSource{left: 1, results: results{rows: columns{fields: fields}}, decoder: &decoder{types: pgtype.NewMap()}}
	b.driverRows = shared{&b.source, fields}
	rows, err := b.Query()
	require.NoError(t, err)
	require.EqualValues(t, pgtype.Int4OID, rows.FieldDescriptions()[0].DataTypeOID)
}
