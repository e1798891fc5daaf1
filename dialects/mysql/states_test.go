package mysql

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// TestAGeneralErrorHasTheStateThatItsNumberMeans: the server gives HY000 to many.
func TestAGeneralErrorHasTheStateThatItsNumberMeans(t *testing.T) {
	general := [5]byte{'H', 'Y', '0', '0', '0'}
	for number, want := range map[uint16]string{1290: "25006", 1836: "25006", 1021: "53100", 1114: "53100", 1205: "55P03", 1105: "HY000"} {
		require.Equal(t, want, dialect{}.SQLState(fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: number, SQLState: general})), number)
	}
	require.Equal(t, "23000", dialect{}.SQLState(&mysql.MySQLError{Number: 1062, SQLState: [5]byte{'2', '3', '0', '0', '0'}}))
	require.Empty(t, dialect{}.SQLState(errors.New("x")))
}
