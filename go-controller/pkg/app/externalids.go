package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	gatewaynode "github.com/ovnkube/ovnkube/go-controller/pkg/gateway/node"
)

const (
	// ovsSocket is the socket of the Open vSwitch database.
	ovsSocket = "/var/run/openvswitch/db.sock"
	// ovsTimeout is the timeout for a query.
	ovsTimeout = 3 * time.Second
)

// ExternalIDs reads the external_ids of the local Open vSwitch, for config.Sources. If its database
// was lost, the ones are added that the given node had in it.
func ExternalIDs(node string) (map[string]string, error) {
	ids, err := externalIDs(ovsSocket)
	if err != nil {
		return nil, err
	}
	return gatewaynode.WithLost(ids, stateFile, node), nil
}

// externalIDs runs one select over the database's socket: there is no configuration yet from which
// to create a real OVSDB client.
func externalIDs(socket string) (map[string]string, error) {
	conn, err := net.DialTimeout("unix", socket, ovsTimeout)
	if err != nil {
		return nil, fmt.Errorf("connect to Open vSwitch: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(ovsTimeout)); err != nil {
		return nil, fmt.Errorf("connect to Open vSwitch: %w", err)
	}
	request := map[string]any{"id": 0, "method": "transact", "params": []any{"Open_vSwitch", map[string]any{
		"op": "select", "table": "Open_vSwitch", "where": []any{}, "columns": []string{"external_ids"},
	}}}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return nil, fmt.Errorf("ask Open vSwitch for external_ids: %w", err)
	}
	var reply struct {
		Result []struct {
			Rows []struct {
				ExternalIDs json.RawMessage `json:"external_ids"`
			} `json:"rows"`
			Error string `json:"error"`
		} `json:"result"`
		Error any `json:"error"`
	}
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		return nil, fmt.Errorf("read external_ids of Open vSwitch: %w", err)
	}
	if reply.Error != nil || len(reply.Result) != 1 || reply.Result[0].Error != "" {
		return nil, fmt.Errorf("read external_ids of Open vSwitch: refused: %v", reply)
	}
	if len(reply.Result[0].Rows) == 0 {
		return nil, errors.New("read external_ids of Open vSwitch: no Open_vSwitch row")
	}
	return decodeMap(reply.Result[0].Rows[0].ExternalIDs)
}

// decodeMap decodes OVSDB's ["map",[["key","value"],...]].
func decodeMap(raw json.RawMessage) (map[string]string, error) {
	var kind string
	var pairs [][2]string
	if err := json.Unmarshal(raw, &[]any{&kind, &pairs}); err != nil || kind != "map" {
		return nil, fmt.Errorf("read external_ids of Open vSwitch: %s is not a map", raw)
	}
	out := make(map[string]string, len(pairs))
	for _, p := range pairs {
		out[p[0]] = p[1]
	}
	return out, nil
}
