package reader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	ipv1 "github.com/ovnkube/ovnkube/go-controller/pkg/apis/egressip/v1"
)

// listEgressIPs calls add with each EgressIP, as soon as it arrives if c supports streams.
func listEgressIPs(ctx context.Context, c Clients, add func(*ipv1.EgressIP)) error {
	if c.Streams == nil {
		return list(ctx, egressIPs, c.IPs.EgressIPV1().EgressIPs().List, func(l *ipv1.EgressIPList) {
			for _, e := range grow(nil, l.Items) {
				add(e)
			}
		})
	}
	get := func(ctx context.Context, o metav1.ListOptions) (*metav1.ListMeta, error) {
		body, err := request(c.Streams, o).Stream(ctx)
		if err != nil {
			return nil, err
		}
		defer body.Close()
		return decodeList(body, func(e *ipv1.EgressIP) {
			e.SetManagedFields(nil)
			add(e)
		})
	}
	return list(ctx, egressIPs, get, func(*metav1.ListMeta) {})
}

// request creates a request for EgressIPs.
func request(c rest.Interface, o metav1.ListOptions) *rest.Request {
	r := c.Get().Resource(ipv1.SchemeGroupVersion.WithResource("egressips").Resource)
	if o.Continue != "" {
		r.Param("continue", o.Continue)
	}
	return r
}

// decodeList calls add with each item of a list in JSON, and returns the list's metadata.
func decodeList[T any](r io.Reader, add func(*T)) (*metav1.ListMeta, error) {
	d, meta, listed := json.NewDecoder(r), &metav1.ListMeta{}, false
	if err := expect(d, json.Delim('{')); err != nil {
		return nil, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch name {
		case "items":
			err, listed = decodeItems(d, add), true
		case "metadata":
			err = d.Decode(meta)
		default:
			err = d.Decode(new(json.RawMessage))
		}
		if err != nil {
			return nil, err
		}
	}
	if !listed {
		return nil, errors.New("the answer has no items")
	}
	return meta, expect(d, json.Delim('}'))
}

// decodeItems calls add with each item of an array, which may be null.
func decodeItems[T any](d *json.Decoder, add func(*T)) error {
	if t, err := d.Token(); err != nil || t == nil {
		return err
	} else if t != json.Delim('[') {
		return fmt.Errorf("the items are %v", t)
	}
	for d.More() {
		item := new(T)
		if err := d.Decode(item); err != nil {
			return err
		}
		add(item)
	}
	return expect(d, json.Delim(']'))
}

// expect reads a token.
func expect(d *json.Decoder, want json.Token) error {
	t, err := d.Token()
	switch {
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case err == nil && t != want:
		return fmt.Errorf("%v in place of %v", t, want)
	}
	return err
}
