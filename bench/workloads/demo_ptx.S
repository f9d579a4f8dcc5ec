    .section .rodata
    .global heddle_demo_ptx
heddle_demo_ptx:
    .incbin HEDDLE_DEMO_PTX
    .byte 0
    .section .note.GNU-stack, "", @progbits
