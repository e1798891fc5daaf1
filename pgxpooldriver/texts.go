package pgxpooldriver

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/direct"
)

// rewrite has pgx's own rewriters (NamedArgs) rewrite the text, because the text that is sent decides what the
// statement leaves on its session. What another rewriter makes of the text is known only when pgx calls it with the
// connection, so it counts as anything.
func rewrite(ctx context.Context, text string, args []any) (string, []any, dialects.Effect, error) {
	for i, arg := range args {
		switch r := arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			continue
		case pgx.NamedArgs, pgx.StrictNamedArgs:
			text, values, err := r.(pgx.QueryRewriter).RewriteQuery(ctx, nil, text, args[i+1:])
			if err != nil {
				return "", nil, 0, fmt.Errorf("rewrite query failed: %w", err)
			}
			return text, append(args[:i:i], values...), 0, nil
		case pgx.QueryRewriter:
			return text, args, direct.Anything, nil
		}
		break
	}
	return text, args, 0, nil
}

// values are args without pgx's options in front of them.
func values(args []any) []any {
	for i, arg := range args {
		switch arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			continue
		}
		return args[i:]
	}
	return nil
}

// unkept returns args with the nearest mode in which pgx neither keeps a statement nor uses one that it has kept: in
// QueryExecModeCacheDescribe it sends the text with each execution, and keeps the types, which depend on no such setting.
func unkept(c *pgx.Conn, args []any) []any {
	s := sideOf(c)
	mode := s.mode
	for i, arg := range args {
		switch m := arg.(type) {
		case pgx.QueryExecMode:
			mode = m
			args = append(args[:i:i], args[i+1:]...)
		case pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			continue
		}
		break
	}
	if mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeDescribeExec {
		if mode = pgx.QueryExecModeDescribeExec; s.described {
			mode = pgx.QueryExecModeCacheDescribe
		}
	}
	return append([]any{mode}, args...)
}
