package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"
)

// serve answers on a port, by TCP, UDP and, if the kernel has it, SCTP, and echoes bytes on the next port.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	port := flags.Int("port", 8080, "HTTP port; echo is on the next one")
	attached := flags.Bool("until-stdin-closes", false, "end when standard input does")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if *attached {
		ctx = untilStdinCloses(ctx)
	}
	limited := net.ListenConfig{Control: limitRetransmit}
	echo, err := limited.Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(*port+1)))
	if err != nil {
		return err
	}
	go echoAll(echo)
	datagrams, err := net.ListenPacket("udp", net.JoinHostPort("", strconv.Itoa(*port)))
	if err != nil {
		return err
	}
	go answerAll(datagrams)
	web := &http.Server{
		Addr:              net.JoinHostPort("", strconv.Itoa(*port)),
		Handler:           handler(),
		ReadHeaderTimeout: 10 * time.Second,
	}
	associations, err := listenSCTP(*port)
	if err != nil {
		return err
	}
	if associations != nil {
		go func() { _ = web.Serve(associations) }() // ends with web
	}
	go func() {
		<-ctx.Done()
		echo.Close()
		datagrams.Close()
		web.Close()
	}()
	if err := web.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /clientip", func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, peer.Addr().Unmap())
	})
	mux.HandleFunc("GET /hostname", func(w http.ResponseWriter, _ *http.Request) {
		name, err := os.Hostname()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, name)
	})
	mux.HandleFunc("GET /who", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, who(r.RemoteAddr))
	})
	return mux
}

// who returns the names of this machine and of the client.
func who(client string) string {
	name, err := os.Hostname()
	if err != nil {
		return err.Error()
	}
	peer, err := netip.ParseAddrPort(client)
	if err != nil {
		return err.Error()
	}
	return name + " " + peer.Addr().Unmap().String()
}

func echoAll(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}
