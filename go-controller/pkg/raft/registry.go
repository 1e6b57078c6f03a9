package raft

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ConfigMap is a Registry that stores the ID of each cluster under the name of its database, in a ConfigMap that is
// part of the manifests.
type ConfigMap struct {
	Client          kubernetes.Interface
	Namespace, Name string
}

// ID implements Registry.
func (c ConfigMap) ID(ctx context.Context, database string) (string, error) {
	m, err := c.Client.CoreV1().ConfigMaps(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return m.Data[database], nil
}

// Record implements Registry.
func (c ConfigMap) Record(ctx context.Context, database, id string) error {
	maps := c.Client.CoreV1().ConfigMaps(c.Namespace)
	m, err := maps.Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if have := m.Data[database]; have != "" {
		if have != id {
			return fmt.Errorf("ConfigMap %s/%s has %s as the cluster of database %s, not %s", c.Namespace, c.Name, have, database, id)
		}
		return nil
	}
	if m.Data == nil {
		m.Data = map[string]string{}
	}
	m.Data[database] = id
	_, err = maps.Update(ctx, m, metav1.UpdateOptions{}) // refused if somebody else was faster
	return err
}
