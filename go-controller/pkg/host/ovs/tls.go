package ovs

import (
	"context"

	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/ovs/vswitchd"
)

// TLS names the files with which the daemons that use the local database speak
// TLS, ovn-controller with the southbound database among them.
type TLS struct {
	PrivateKey, Certificate, CACert string
}

// SetTLS implements Client.
func (db *DB) SetTLS(ctx context.Context, want TLS) error {
	return db.update(ctx, "set the TLS files", func(s *session) ([]ovsdb.Operation, error) {
		sys, err := s.system(ctx)
		if err != nil {
			return nil, err
		}
		t := &tx{ctx: ctx, s: s}
		if sys.SSL != nil {
			row := &vswitchd.SSL{UUID: *sys.SSL}
			if exists, err := s.get(ctx, row); err != nil {
				return nil, err
			} else if exists {
				t.changeTLS(row, want)
				return t.finish(sys)
			}
		}
		row := &vswitchd.SSL{
			UUID: "newssl", PrivateKey: want.PrivateKey, Certificate: want.Certificate, CaCert: want.CACert,
		}
		t.add(s.client.Create(row))
		sys.SSL = &row.UUID
		t.add(s.client.Where(sys).Update(sys, &sys.SSL))
		return t.finish(sys)
	})
}

func (t *tx) changeTLS(row *vswitchd.SSL, want TLS) {
	if want == (TLS{row.PrivateKey, row.Certificate, row.CaCert}) {
		return
	}
	row.PrivateKey, row.Certificate, row.CaCert = want.PrivateKey, want.Certificate, want.CACert
	t.add(t.s.client.Where(row).Update(row, &row.PrivateKey, &row.Certificate, &row.CaCert))
}
