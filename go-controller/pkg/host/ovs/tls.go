package ovs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovnkube/ovnkube/go-controller/pkg/ovs/vswitchd"
)

// TLS names the TLS files of the daemons that use the local database, including those with which
// ovn-controller connects to the southbound database.
type TLS struct {
	PrivateKey, Certificate, CACert string
}

// idTLSBefore marks a row of TLS files that SetTLS has written. Its value is the previous content
// of the row, zero if there was none.
const idTLSBefore = "ovn-kube-before"

// SetTLS implements Client.
func (db *DB) SetTLS(ctx context.Context, want TLS) error {
	db.record(func(w *written) { w.tls = want })
	return db.update(ctx, "set the TLS files", func(s *session) ([]ovsdb.Operation, error) {
		sys, err := s.system(ctx)
		if err != nil {
			return nil, err
		}
		t := &tx{ctx: ctx, s: s}
		row, err := s.tls(ctx, sys)
		if err != nil {
			return nil, err
		}
		if row != nil {
			t.changeTLS(row, want)
			return t.finish(sys)
		}
		row = &vswitchd.SSL{UUID: "newssl"}
		row.PrivateKey, row.Certificate, row.CaCert = want.PrivateKey, want.Certificate, want.CACert
		t.markTLS(row, TLS{})
		t.add(s.client.Create(row))
		sys.SSL = &row.UUID
		t.add(s.client.Where(sys).Update(sys, &sys.SSL))
		return t.finish(sys)
	})
}

// RestoreTLS implements Client.
func (db *DB) RestoreTLS(ctx context.Context) error {
	db.record(func(w *written) { w.tls = TLS{} })
	return db.update(ctx, "restore the TLS files", func(s *session) ([]ovsdb.Operation, error) {
		sys, err := s.system(ctx)
		if err != nil {
			return nil, err
		}
		row, err := s.tls(ctx, sys)
		if err != nil || row == nil || row.ExternalIDs[idTLSBefore] == "" {
			return nil, err
		}
		var before TLS
		if err := json.Unmarshal([]byte(row.ExternalIDs[idTLSBefore]), &before); err != nil {
			return nil, fmt.Errorf("decode %s: %w", idTLSBefore, err)
		}
		t := &tx{ctx: ctx, s: s}
		if before == (TLS{}) {
			sys.SSL = nil // the row is deleted with the reference
			t.add(s.client.Where(sys).Update(sys, &sys.SSL))
			return t.finish(sys)
		}
		row.ExternalIDs = maps.Clone(row.ExternalIDs)
		delete(row.ExternalIDs, idTLSBefore)
		t.updateTLS(row, before)
		return t.finish(sys)
	})
}

// tls returns the row of the TLS files, or nil if there is none.
func (s *session) tls(ctx context.Context, sys *vswitchd.OpenvSwitch) (*vswitchd.SSL, error) {
	if sys.SSL == nil {
		return nil, nil
	}
	row := &vswitchd.SSL{UUID: *sys.SSL}
	exists, err := s.get(ctx, row)
	if err != nil || !exists {
		return nil, err
	}
	return row, nil
}

// changeTLS sets the files in a row. The first time it remembers the previous files, unless they
// equal want: those are ours, whoever has set them.
func (t *tx) changeTLS(row *vswitchd.SSL, want TLS) {
	have := TLS{row.PrivateKey, row.Certificate, row.CaCert}
	marked := row.ExternalIDs[idTLSBefore] != ""
	if want == have && marked {
		return
	}
	if !marked {
		before := have
		if want == have {
			before = TLS{}
		}
		t.markTLS(row, before)
	}
	t.updateTLS(row, want)
}

func (t *tx) markTLS(row *vswitchd.SSL, before TLS) {
	text, err := json.Marshal(before)
	if err != nil && t.err == nil {
		t.err = fmt.Errorf("encode %s: %w", idTLSBefore, err)
	}
	ids := map[string]string{idTLSBefore: string(text)}
	maps.Copy(ids, row.ExternalIDs)
	row.ExternalIDs = ids
}

func (t *tx) updateTLS(row *vswitchd.SSL, want TLS) {
	row.PrivateKey, row.Certificate, row.CaCert = want.PrivateKey, want.Certificate, want.CACert
	t.add(t.s.client.Where(row).Update(row, &row.PrivateKey, &row.Certificate, &row.CaCert, &row.ExternalIDs))
}
