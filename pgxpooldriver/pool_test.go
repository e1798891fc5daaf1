package pgxpooldriver

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
	"github.com/pooldriver/pooldriver/internal/direct"
)

func TestAConnectorThatIsNotForPostgreSQLIsAnErrorOfEveryCall(t *testing.T) {
	t.Parallel()
	for _, connector := range []*pooldriver.Connector{nil, pooldriver.New("nonsense://"), pooldriver.New("sqlite::memory:")} {
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
	causes := []error{errors.New("begin"), errors.New("end")}
	begin, endBegin := context.WithCancelCause(context.WithValue(t.Context(), key{}, "begin"))
	end, endEnd := context.WithCancelCause(t.Context())
	var l lifetime
	l.start(begin)
	require.Equal(t, begin.Done(), l.Done())
	inside, cancel := context.WithCancel(&l)
	defer cancel()
	l.begun()
	endBegin(causes[0])
	<-inside.Done()
	require.Equal(t, causes[0], context.Cause(inside))
	require.Nil(t, l.Done())
	require.NoError(t, l.Err())
	require.NoError(t, context.Cause(&l))
	require.Equal(t, "begin", l.Value(key{}))
	l.finish(end)
	inside, cancel = context.WithCancel(&l)
	defer cancel()
	endEnd(causes[1])
	<-inside.Done()
	require.ErrorIs(t, l.Err(), context.Canceled)
	require.Equal(t, causes[1], context.Cause(&l))
	require.Equal(t, causes[1], context.Cause(inside))
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
