package nb

// Stored is a row of any table as it is in the database, no matter who wrote it.
type Stored struct {
	Table, UUID string
	// Sets are the columns that are not maps, by name. A column with a single value is a
	// set of one, and references are UUIDs. Empty columns are left out.
	Sets map[string][]string
	// Maps are the columns that are maps, by name. Empty ones are left out.
	Maps map[string]map[string]string
	// Owner is the owner of the row; nil for foreign rows.
	Owner *Owner
	// Parents are the rows that reference this one, for tables whose rows have a Parent.
	Parents []Parent
}

// Value returns the value of a column that has exactly one; otherwise "".
func (s Stored) Value(column string) string {
	if len(s.Sets[column]) != 1 {
		return ""
	}
	return s.Sets[column][0]
}

// Mark makes a foreign row one of ours. What the owner wants then decides what happens to
// it.
type Mark struct {
	Table, UUID string
	Owner       Owner
	// ID and Parent are those of the wanted row that it corresponds to.
	ID     string
	Parent Parent
}
