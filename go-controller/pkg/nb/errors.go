package nb

import "errors"

var (
	// ErrNoParent means that a row hangs on, or refers to, a row that is not in
	// the database (yet). Nothing of the owner was written; the key that applied
	// it backs off and tries again.
	ErrNoParent = errors.New("row referred to does not exist")
	// ErrConflict means that a row's unique name is taken by a row of somebody
	// else. Nothing of the owner was written and the other row was left alone.
	ErrConflict = errors.New("name is taken by a row of another owner")
)
