package nbfake

import (
	"reflect"

	"github.com/ovn-org/libovsdb/model"

	"github.com/ovnkube/ovnkube/go-controller/pkg/nb/nbdb"
)

// nameOf returns what other rows find a row by: its name, or the columns that are unique in
// its table.
func nameOf(m model.Model) string {
	switch m := m.(type) {
	case *nbdb.BFD:
		return m.LogicalPort + "/" + m.DstIP
	case *nbdb.StaticMACBinding:
		return m.LogicalPort + "/" + m.IP
	case *nbdb.ChassisTemplateVar:
		return m.Chassis
	}
	if f := reflect.ValueOf(m).Elem().FieldByName("Name"); f.IsValid() && f.Kind() == reflect.String {
		return f.String()
	}
	return ""
}

// hasOwner reports whether rows of a table record their owner and id in external_ids; other
// rows are identified by their names.
func hasOwner(m model.Model) bool {
	return reflect.ValueOf(m).Elem().FieldByName("ExternalIDs").IsValid()
}
