// Hash of a request, which selects its slot, and whether the request is admitted.

control FlowgaugeRequest(inout flowgauge_request_t request, in bit<1> bank, in bit<2> kind) {
    flowgauge_words_t words;
    FlowgaugeTabulation() tabulation;
    Hash<bit<32>>(HashAlgorithm_t.XOR32) xor_words;

    action fold() {
        request.hash = xor_words.get({ words.low0, words.low1, words.low2, words.low3 });
    }

#if FLOWGAUGE_DELAY_ALGORITHM == FLOWGAUGE_DELAY_MULTI_FRIDGE
    action admit(bit<1> kept, bit<1> counts, bit<2> fridge) {
        request.is_admitted = kept;
        request.counts = counts;
        request.fridge = fridge;
    }
#else
    action admit(bit<1> kept, bit<1> counts) {
        request.is_admitted = kept;
        request.counts = counts;
    }
#endif

    action refuse() {}

    // A request is admitted if a number of lower bits of its hash are zero. That number depends on
    // bank and kind, and may change with each window. Then requests may wait in the tables whose
    // answers do not count.
    table admission {
        key = {
            bank : ternary @name("bank");
            kind : ternary @name("kind");
            request.hash[15:0] : ternary @name("hash");
        }
        actions = {
            admit;
            refuse;
        }
        default_action = refuse();
        size = 256;
    }

    apply {
        tabulation.apply(request.signature, words);
        fold();
        // A slot without a request has the signature zero.
        if (request.is_one == 1 && request.signature != 0) {
            admission.apply();
        }
    }
}
