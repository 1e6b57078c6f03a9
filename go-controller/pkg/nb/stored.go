package nb

// Stored is a row of any table as it is in the database, whoever wrote it.
type Stored struct {
	Table, UUID string
	// Sets are the columns that are no maps, by name: a column of one value is a set of
	// one, and references are UUIDs. Empty ones are not in it.
	Sets map[string][]string
	// Maps are the columns that are maps, by name. Empty ones are not in it.
	Maps map[string]map[string]string
	// Owner is whose row it is; nil where it is not ours.
	Owner *Owner
	// Parents are the rows in whose lists it is, for rows of tables that have a Parent.
	Parents []Parent
}

// Value returns the value of a column that has one; "" where it has none.
func (s Stored) Value(column string) string {
	if len(s.Sets[column]) != 1 {
		return ""
	}
	return s.Sets[column][0]
}

// Mark makes a row of somebody else ours. What is wanted of the owner decides what
// becomes of it.
type Mark struct {
	Table, UUID string
	Owner       Owner
	// ID and Parent are those of the wanted row that it is.
	ID     string
	Parent Parent
}
