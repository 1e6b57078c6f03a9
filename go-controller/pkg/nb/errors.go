package nb

import "errors"

var (
	// ErrNoParent means that the parent of a row, or a row that it refers to, is not in the
	// database (yet). None of the owner's rows were written; the key that applied them
	// backs off and retries.
	ErrNoParent = errors.New("row referred to does not exist")
	// ErrConflict means that a row's unique name is taken by a row of another owner. None
	// of the owner's rows were written and the other row was left unchanged.
	ErrConflict = errors.New("name is taken by a row of another owner")
)
